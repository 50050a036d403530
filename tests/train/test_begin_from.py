"""Runs that begin from other weights: what their reference policy is, also after a resume."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from rlfactory.cli.app import dispatch
from rlfactory.run.checkpoint.load import load_checkpoint
from rlfactory.tools.restore import restored_components
from rlfactory.train.build import instantiate_group

TINY = [
    *("hardware=cpu", "iterations=1", "prompts_per_iteration=2", "group_size=2", "epochs=1"),
    *("updates_per_iteration=1", "evaluation.prompts=1", "evaluation.grid=1"),
    "evaluation.preview_every=0",
    *("checkpoint.keep=null", "checkpoint.every=1"),
]
KINDS = {
    "texts": [*TINY, "model=tiny_gpt2", "dynamics.length=8", "learning_rate.final_scale=1"],
    "images": [*TINY, "model.size=32", "schedule.steps=2", "algo=nft", "reward=compressibility"],
}
KL = {"texts": "regularizer=kl_token", "images": "regularizer=kl_v"}
ADAPTERS = ["model.finetune=lora", "model.lora_rank=2", "model.lora_alpha=8", "optimizer.lr=0.05"]


MERGED = "begin_as=merged"
WHOLE, SLOW = pytest.mark.whole, pytest.mark.slow
BEGINNINGS = [
    *(pytest.param(name, marks=[SLOW, WHOLE]) for name in ("texts-lora", "images-full")),
    *("texts-full", "images-lora"),
]


@pytest.fixture(scope="module", params=BEGINNINGS)
def begun(
    undrawn: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """The words of a short run, and the folder of one whose weights moved far."""
    media, _, finetune = request.param.partition("-")
    own = ADAPTERS if finetune == "lora" else ["model.finetune=full", "optimizer.lr=0.01"]
    path = tmp_path_factory.mktemp("begun") / "first"
    assert dispatch([f"run_dir={path}", *KINDS[media], *own]) == 0
    # nothing of the adapters is typed again
    return [*KINDS[media], KL[media], f"begin_from={path}"], path


def measured(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    return [line["kl/reference"] for line in lines if "kl/reference" in line]


@pytest.mark.slow
def test_the_reference_is_the_start_or_the_base(begun: Any, tmp_path: Path) -> None:
    words, first = begun
    for reference in ("start", "base"):
        run = tmp_path / reference
        assert dispatch([f"run_dir={run}", *words, f"reference_from={reference}"]) == 0
        assert (measured(run)[0] < 1e-9) is (reference == "start"), measured(run)
    assert (
        yaml.safe_load((tmp_path / "start/config.yaml").read_text())["model"]
        == (yaml.safe_load((first / "config.yaml").read_text())["model"])
    )


@SLOW
def test_a_resumed_run_has_the_same_reference(begun: Any, tmp_path: Path) -> None:
    words, _ = begun
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert dispatch([f"run_dir={whole}", *words, "iterations=2"]) == 0
    assert dispatch([f"run_dir={parts}", *words, "iterations=1"]) == 0
    assert dispatch(["resume", str(parts), "iterations=2"]) == 0
    assert measured(parts) == measured(whole)
    assert measured(whole)[1] > 0


@pytest.mark.slow
def test_a_reference_that_was_not_kept_is_the_start(begun: Any, tmp_path: Path) -> None:
    words, first = begun
    run = tmp_path / "run"
    assert dispatch([f"run_dir={run}", *words, "regularizer=none", "optimizer.lr=0.01"]) == 0
    config = yaml.safe_load((run / "config.yaml").read_text())
    model = restored_components(run / "checkpoints/step_000001", config, ["reference"])[0].model
    started = instantiate_group(config, "model", device=torch.device("cpu"), seed=0)
    load_checkpoint(first / "checkpoints/step_000001", started)
    expected = started.weights.state_dict()
    saved = load_file(run / "checkpoints/step_000001/weights.safetensors")
    with model.weights("reference"):
        for name, parameter in model.weights.parameters.items():
            if not name.startswith("critic."):
                assert torch.equal(parameter, expected[f"policy/{name}"]), name
                assert not torch.equal(saved[f"policy/{name}"], parameter) or not parameter.any()


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / f"checkpoints/step_{step:06d}/weights.safetensors")


@SLOW
@pytest.mark.parametrize(
    ("media", "finetune"), [("texts", "lora"), pytest.param("images", "lora", marks=WHOLE)]
)
def test_a_merged_start_is_below_what_is_trained(
    undrawn: None,
    media: str,
    finetune: str,
    tmp_path: Path,
    refused: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def said(*words: str) -> str:
        capsys.readouterr()
        return str(refused("check", *words))

    first, whole, parts = (tmp_path / name for name in ("first", "whole", "parts"))
    assert dispatch([f"run_dir={first}", *KINDS[media], *ADAPTERS]) == 0
    start = tmp_path / "start"
    assert "begin_as=merged" in said(*KINDS[media], f"begin_from={first}", MERGED)
    assert dispatch(["export", str(first), "--to", str(start), "--weights", "policy"]) == 0
    words = [*KINDS[media], KL[media], f"begin_from={start}", MERGED, "optimizer.lr=0.05"]
    words = [*words, f"model.finetune={finetune}", "model.lora_rank=3", "model.lora_alpha=3"]
    assert "reference_from=start" in said(*words, "reference_from=base")
    assert dispatch([f"run_dir={whole}", *words, "iterations=2"]) == 0
    assert dispatch([f"run_dir={parts}", *words, "iterations=1"]) == 0
    # the run's own copy is what goes on
    start.rename(tmp_path / "elsewhere")
    assert dispatch(["resume", str(parts), "iterations=2"]) == 0
    assert measured(parts) == measured(whole)
    assert measured(whole)[0] < 1e-9 < measured(whole)[1]
    one, other = weights(whole, 2), weights(parts, 2)
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[key]) for key, value in one.items())
    # exported adapters are of the bare network, and the run draws with both
    out = tmp_path / "out"
    assert dispatch(["export", str(whole), "--to", str(out), "--weights", "policy"]) == 0
    assert json.loads((out / "adapter_config.json").read_text())["r"] == 5
    saved = load_file(out / "adapter_model.safetensors")
    bare = load_file(tmp_path / "elsewhere" / "adapter_model.safetensors")
    for key, value in bare.items():
        held = saved[key][:2] if "lora_A" in key else saved[key][:, :2]
        torch.testing.assert_close(held, value * (1 if "lora_A" in key else 4))
    assert "begin_from=" in said(*KINDS[media], f"begin_from={whole}")
    assert dispatch(["check", *KINDS[media], f"begin_from={out}"]) == 0


@SLOW
def test_all_weights_are_trained_on_a_merged_start(
    undrawn: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert dispatch([f"run_dir={first}", *KINDS["texts"], *ADAPTERS]) == 0
    start = first / "checkpoints/step_000001"
    words = [*KINDS["texts"], KL["texts"], f"begin_from={start}", MERGED, "model.finetune=full"]
    assert dispatch([f"run_dir={second}", *words]) == 0
    assert "merged into the network" in capsys.readouterr().out
    assert measured(second)[0] < 1e-9
    moved = weights(second, 1)
    config = yaml.safe_load((second / "config.yaml").read_text())
    bare = instantiate_group(config, "model", device=torch.device("cpu"), seed=0)
    before = bare.weights.state_dict()
    near = [moved[key].isclose(value, atol=1e-3).all() for key, value in before.items()]
    assert not all(near)
