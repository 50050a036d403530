"""A model by its folder or hub id; strangers' folders are in tests/strangers."""

from pathlib import Path

import pytest

from rlfactory.api import plan
from rlfactory.config.named_models import option_of, shown_model, with_options
from rlfactory.config.problems import PlanError
from rlfactory.model.pipelines.local_models import zoo_path


def test_a_path_is_the_option_of_its_kind_and_its_path(tmp_path: Path) -> None:
    (tmp_path / "my lm").symlink_to(zoo_path("tiny_gpt2"))
    path = tmp_path / "my lm"
    assert with_options([f"model={path}", "algo=ppo"], ()) == [
        *("model=causal_lm", f"model.path='{path}'", "algo=ppo")
    ]
    assert with_options(["model=gpt2", "model.path=x"], ()) == ["model=gpt2", "model.path=x"]
    kept = ["model=Qwen/Qwen3-0.6B", "model.path=/copy"]
    assert with_options(kept, ()) == ["model=causal_lm", "model.path=/copy"]
    assert with_options(["model=me/a,me/b"], ()) == ["model=me/a,me/b"]  # each job by itself
    for word in ("model=", "model=null", "model=no_such", "+model=me/a", "model='"):
        assert with_options([word], ()) == [word]


def test_what_only_the_hub_could_say_is_not_guessed_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(PlanError) as refused:
        plan("model=me/mine", "reward=compressibility")
    assert [p.key for p in refused.value.problems] == ["model"]
    assert "HF_HUB_OFFLINE is set" in str(refused.value)


def test_a_file_and_a_folder_of_the_cache_are_told_from_models(tmp_path: Path) -> None:
    (file := tmp_path / "civit.safetensors").touch()
    with pytest.raises(PlanError, match="from_single_file of its diffusers pipeline makes one"):
        with_options([f"model={file}"], ())
    (copy := tmp_path / "models--me--mine" / "snapshots" / "abc").mkdir(parents=True)
    with pytest.raises(PlanError, match="the model lies in it") as refused:
        with_options([f"model={copy.parents[1]}"], ())
    assert refused.value.problems[0].instead == (f"model={copy}",)


@pytest.mark.parametrize(
    ("files", "instead"),
    [
        ({"config.json": "{}"}, ["model={0}"]),
        (
            {"adapter_config.json": '{"base_model_name_or_path": "gpt2"}'},
            ["model=gpt2", "begin_from={0}"],
        ),
        ({"unet/model.safetensors": ""}, None),
    ],
)
def test_a_trainers_folder_names_its_newest_checkpoint(
    tmp_path: Path, files: dict[str, str], instead: list[str] | None
) -> None:
    for name in ("checkpoint-9", "checkpoint-10", "checkpoint-last"):
        for file, text in files.items():
            (place := tmp_path / name / file).parent.mkdir(parents=True)
            place.write_text(text)
    newest = tmp_path / "checkpoint-10"
    with pytest.raises(PlanError, match=f"name one, of which {newest} is the newest") as refused:
        with_options([f"model={tmp_path}"], ())
    words = instead and tuple(word.format(newest) for word in instead)
    assert refused.value.problems[0].instead == words


def test_ids_say_their_kind() -> None:
    assert option_of("zoo:tiny_sd3") == "tiny_sd3"
    assert option_of("Qwen/Qwen3-8B") == "qwen3"
    assert option_of("Qwen/Qwen3-0.6B") == option_of("somebody/a-chat-model") == "causal_lm"
    assert option_of("Qwen/Qwen2.5-VL-7B-Instruct") == "qwen25_vl"
    assert option_of("black-forest-labs/FLUX.1-dev") == "flux"
    assert option_of("somebody/SDXL-of-mine") == "sdxl"
    assert option_of("somebody/Chroma1-Flash") == "chroma"
    assert option_of("Qwen/Qwen-Image-2.1-Turbo") == "qwen_image_21"
    assert option_of("somebody/qwen-image-edit-2511-mine") == "qwen_image_edit"
    assert option_of("/nothing/there") is option_of("Qwen/Qwen-Image-Edit") is None


@pytest.mark.parametrize(
    ("path", "name"),
    [
        *(("zoo:tiny_gpt2", "tiny_gpt2"), ("Qwen/Qwen3-0.6B", "Qwen3-0.6B")),
        *(("./a b/", "a_b"), ("/models/chat.Q4.gguf", "chat.Q4"), ("object:model", "gpt2")),
        ("/hub/models--me--mine/snapshots/0a1b", "mine"),
        *(("own", "gpt2"), (None, "gpt2")),
    ],
)
def test_a_model_is_named_by_the_last_part_of_its_path(path: object, name: str) -> None:
    assert shown_model("gpt2", path, "own") == name


def test_python_takes_paths_and_ids(tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(zoo_path("tiny_gpt2"))
    planned = plan(model=tmp_path / "mine")
    assert (planned.choices["model"], planned.model) == ("causal_lm", "mine")
    assert plan(model=str(tmp_path / "mine")).config == planned.config
    assert "model: mine" in planned.frozen()
    assert planned.run_dir.name.endswith("grpo_token-mine-negative_sentiment-s0")
    with pytest.raises(PlanError, match="does not exist"):
        plan(model=tmp_path / "other")
