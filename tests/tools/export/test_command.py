"""`rlfactory export`, through the command: what it writes, says and refuses."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from diffusers import (
    FluxPipeline,
    StableDiffusion3Pipeline,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    WanPipeline,
)
from huggingface_hub import ModelCard
from huggingface_hub.constants import ENDPOINT
from peft import PeftConfig, PeftModel, get_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlfactory.cli import app
from rlfactory.config.overrides import plan_from_words
from rlfactory.model.lora import Lora, merge_adapters
from rlfactory.model.merged_start import merge_start
from rlfactory.model.pipelines.adapter_files import read_adapters
from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.model.sd3 import SD3
from rlfactory.run.checkpoint.load import load_initial_weights
from rlfactory.run.checkpoint.save import begin_checkpoint
from rlfactory.run.disk_errors import DiskError
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.tools.export import command as export_module
from rlfactory.tools.export.base_model import BaseModel, base_model
from rlfactory.tools.export.card import CONFIG_FILE, FULL, ExportInfo, write_card
from rlfactory.tools.export.command import ExportOptions, write_lora_file
from rlfactory.tools.export.snippet import Snippet
from rlfactory.train.build import build, instantiate_group
from rlfactory.utils.errors import UserError
from rlfactory.utils.types import LoraTargets

IN_PACKAGE = "zoo_path('tiny_sd3')"
SHIPPED = "from rlfactory.model.pipelines.shipped import zoo_path"


def export(run: Path, to: Path, *words: str) -> int:
    return app.dispatch(["export", str(run), "--to", str(to), *words])


def test_the_folder_has_weights_a_card_and_pictures(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "new" / "left"
    assert export(run, to) == 0
    said = capsys.readouterr().out
    card = ModelCard.load(to / "README.md")
    assert (card.data.library_name, card.data.pipeline_tag) == ("diffusers", "text-to-image")
    assert {"rlfactory", "nft", "lora"} <= set(card.data.tags)
    assert card.data.base_model is None, "the hub knows no zoo:NAME"
    code = said.split("\n\n", 1)[1].rstrip()
    assert str(to) in code
    shown = code.replace(repr(str(to)), "'.'").replace(repr(str(zoo_path("tiny_sd3"))), IN_PACKAGE)
    assert f"```python\n{shown}\n```".replace("\n\n", f"\n{SHIPPED}\n\n", 1) in card.text
    for part in (
        "`zoo:tiny_sd3`",
        "| score | before | after | change | 95 % interval | n |",
        "| shapes\\_strict |",
        "rlfactory 'run_dir=",
        "the `ema` weights after 1 iteration",
        "![Held-out prompts after 1 iteration](pictures/",
        "schedule:\n",
        "sigmas",
    ):
        assert part in card.text, part
    for picture in ("strip.png", "eval_000001.png"):
        assert f"](pictures/{picture})" in card.text
        assert (to / "pictures" / picture).is_file()
    assert yaml.safe_load((to / "rlfactory.yaml").read_text())["choices"]["algo"] == "nft"
    config = PeftConfig.from_pretrained(to)
    assert config.base_model_name_or_path is None, "the hub knows no zoo:NAME"
    assert [path.name for path in to.parent.iterdir()] == ["left"]
    assert to.stat().st_mode & 0o777 == 0o755


def test_the_printed_code_runs(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert export(run, Path("merged"), "--merge") == 0
    names: dict[str, object] = {}
    exec(capsys.readouterr().out.split("\n\n", 1)[1], names)
    pipe, image = names["pipe"], names["image"]
    assert isinstance(pipe, StableDiffusion3Pipeline)
    assert getattr(image, "size", None) == (64, 64)
    assert "merged LoRA adapters" in Path("merged/README.md").read_text()
    assert pipe.text_encoder.dtype == torch.float32


@pytest.mark.parametrize("weights", ["policy", "ema"])
def test_the_weight_set_that_is_named_leaves(run: Path, tmp_path: Path, weights: str) -> None:
    assert export(run, tmp_path / "left", "--weights", weights) == 0
    found = load_file(tmp_path / "left" / "adapter_model.safetensors")
    checkpoint = RunFolder(run).checkpoints / "step_000001" / "weights.safetensors"
    kept = load_file(checkpoint)
    for name, tensor in found.items():
        key = name.removeprefix("base_model.model.").replace(".weight", ".default.weight")
        assert torch.equal(tensor, kept[f"{weights}/{key}"])
    other = "Measured with the `ema` weights, not with these."
    assert (other in (tmp_path / "left" / "README.md").read_text()) is (weights == "policy")


def test_the_best_checkpoint_leaves_where_it_is_asked_for(run: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    checkpoints = RunFolder(copied).checkpoints
    (checkpoints / "best.json").unlink(missing_ok=True)
    with pytest.raises(RunFolderError, match="no best checkpoint"):
        export(copied, tmp_path / "none", "--best")
    shutil.copytree(checkpoints / "step_000001", checkpoints / "step_000000")
    (checkpoints / "best.json").write_text(json.dumps({"step": 0}))
    assert export(copied, tmp_path / "left", "--best") == 0
    card = (tmp_path / "left" / "README.md").read_text()
    assert "after 0 iterations" in card
    assert "These weights were not evaluated" in card


def checkpointed(place: Path, *words: str) -> RunFolder:
    """A run's folder with a checkpoint of a model that was not trained."""
    small = ["recipe=none", "hardware=cpu", "precision=fp32", "prompt_cache=null"]
    run = RunFolder(place)
    run.path.mkdir()
    run.config.write_text(plan_from_words(*words, *small).frozen())
    config = yaml.safe_load(run.config.read_text())
    model = instantiate_group(config, "model", device=torch.device("cpu"), seed=0)
    model.weights.add("ema")
    begin_checkpoint(run.checkpoints / "step_000001", model, "ema", {})()
    return run


@pytest.mark.slow
def test_a_video_model_leaves_with_its_scheduler_and_is_told_apart(
    wan22_folder: Path, tmp_path: Path
) -> None:
    own = ["model.size=[32,48]", "model.frames=5", "model.text_tokens=16", "schedule.shift=2.0"]
    run = checkpointed(tmp_path / "run", "model=wan22", f"model.path={wan22_folder}", *own)
    assert export(run.path, tmp_path / "lora") == 0
    assert export(run.path, tmp_path / "whole", "--merge") == 0
    scheduler = json.loads((tmp_path / "whole/scheduler/scheduler_config.json").read_text())
    assert scheduler["flow_shift"] == 2.0
    for name in ("lora", "whole"):
        assert ModelCard.load(tmp_path / name / "README.md").data.pipeline_tag == "text-to-video"
    card = (tmp_path / "lora/README.md").read_text()
    pipe = WanPipeline.from_pretrained(wan22_folder)
    calls = re.findall(r"`(PeftModel.+?)`", card)
    assert len(calls) == 2
    for call in calls:
        eval(call, {"PeftModel": PeftModel, "pipe": pipe, "PATH": tmp_path / "lora"})


@pytest.mark.slow
def test_the_card_names_the_network_of_each_family(sdxl_folder: Path, tmp_path: Path) -> None:
    small = ["model.size=64", "model.lora_rank=2"]
    run = checkpointed(tmp_path / "run", "model=sdxl", f"model.path={sdxl_folder}", *small)
    assert export(run.path, tmp_path / "left") == 0
    assert (
        "`PeftModel.from_pretrained(pipe.unet, PATH)`" in (tmp_path / "left/README.md").read_text()
    )


@pytest.mark.slow
def test_a_language_model_leaves_as_adapters_and_merged(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(texts, tmp_path / "lora") == 0
    assert export(texts, tmp_path / "merged", "--merge") == 0
    said = capsys.readouterr().out.split("exported to ")[1:]
    for text in said:
        exec(text.split("\n\n", 1)[1], {})
        assert capsys.readouterr().out.strip()
    exact = {"dtype": torch.float32}
    base = AutoModelForCausalLM.from_pretrained(zoo_path("tiny_gpt2"), **exact)
    adapted = PeftModel.from_pretrained(base, tmp_path / "lora").eval()
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    assert not any("lora" in name for name, _ in merged.named_parameters())
    ids = AutoTokenizer.from_pretrained(tmp_path / "merged")("This film", return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(merged(**ids).logits, adapted(**ids).logits, rtol=0, atol=1e-4)
    card = ModelCard.load(tmp_path / "lora" / "README.md")
    assert (card.data.library_name, card.data.pipeline_tag) == ("peft", "text-generation")
    assert ModelCard.load(tmp_path / "merged" / "README.md").data.library_name == "transformers"
    assert (tmp_path / "lora" / "pictures" / "strip.md").is_file()
    assert not [*tmp_path.rglob("value_head.safetensors")], "the run trained no critic"


def test_a_base_in_a_gguf_file_is_loaded_from_it(tmp_path: Path) -> None:
    (file := tmp_path / "chat.Q4.gguf").touch()
    for path in (file, tmp_path):
        base = base_model({"model": {"path": str(path)}}, "texts")
        assert (base.name, base.file, base.hub_id) == (tmp_path.name, file.name, None)
        for code, place in ((base.expression, base.name), (base.local_expression, base.here)):
            given, named = eval(f"(lambda *a, **k: (a, k))({code})")
            assert (given, named) == ((place,), {"gguf_file": file.name})


@pytest.mark.slow
def test_the_code_loads_a_base_that_has_files_of_a_variant_alone(
    sdxl_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = StableDiffusionXLPipeline.from_pretrained(sdxl_folder)
    whole.to(torch.float16).save_pretrained(base := tmp_path / "base", variant="fp16")
    small = ["model.size=64", "model.lora_rank=2", "evaluation.steps=2"]
    run = checkpointed(tmp_path / "run", "model=sdxl", f"model.path={base}", *small)
    assert export(run.path, tmp_path / "left") == 0
    exec(capsys.readouterr().out.split("\n\n", 1)[1], {})
    assert "variant='fp16'" in (tmp_path / "left/README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("is_named", [True, False])
def test_the_code_loads_a_base_that_lacks_parts(
    is_named: bool, sd3_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SD3 without T5, as its index says, and as its folder does though the index names one."""
    shutil.copytree(sd3_folder, base := tmp_path / "base")
    index = json.loads((base / "model_index.json").read_text())
    for part in ("text_encoder_3", "tokenizer_3"):
        shutil.rmtree(base / part)
        index[part] = index[part] if is_named else [None, None]
    (base / "model_index.json").write_text(json.dumps(index))
    small = ["model.size=64", "model.text_tokens=16", "model.lora_rank=2", "evaluation.steps=2"]
    run = checkpointed(tmp_path / "run", "model=sd35", f"model.path={base}", *small)
    for words in ([], ["--merge"]):
        capsys.readouterr()
        assert export(run.path, tmp_path / f"left{words}", *words) == 0
        names: dict[str, Any] = {}
        exec(capsys.readouterr().out.split("\n\n", 1)[1], names)
        assert names["pipe"].text_encoder_3 is None


def test_a_base_on_the_hub_is_named(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = BaseModel(str(zoo_path("tiny_sd3")), "owner/name", "owner/name")
    monkeypatch.setattr(export_module, "base_model", lambda *_: base)
    assert export(run, tmp_path / "left") == 0
    assert PeftConfig.from_pretrained(tmp_path / "left").base_model_name_or_path == "owner/name"
    card = ModelCard.load(tmp_path / "left" / "README.md")
    assert card.data.base_model == "owner/name"
    assert f"[owner/name]({ENDPOINT}/owner/name)" in card.text


def test_nothing_is_overwritten(run: Path, refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    assert "--to: full is not empty" in refused("export", str(run), "--to", "full")
    assert "mine.txt is a file" in refused("export", str(run), "--to", "full/mine.txt")
    for file, said in (("mine.txt", "it holds no config.yaml"), (CONFIG_FILE, "it is an export")):
        (tmp_path / "full" / file).touch()
        refusal = refused("export", "full", "--to", "elsewhere")
        assert f"is no run folder: {said}" in refusal


def test_a_command_that_is_no_text_is_shown_as_far_as_it_is(run: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(run, damaged)
    (damaged / "command.txt").write_bytes(b"rlfactory seed=\xe9 reward=shapes")
    assert app.dispatch(["export", str(damaged), "--to", str(tmp_path / "left")]) == 0
    card = (tmp_path / "left" / "README.md").read_text()
    assert "command: `rlfactory 'seed=\ufffd' reward=shapes`" in card


def test_no_text_of_the_run_ends_the_code_of_the_card(run: Path, tmp_path: Path) -> None:
    folder = RunFolder(Path(shutil.copytree(run, tmp_path / "copy")))
    config = yaml.safe_load(folder.config.read_text()) | {"text": "answer:\n```\n<b>"}
    folder.config.write_text(yaml.safe_dump(config))
    folder.command.write_text("rlfactory 'text=`a`'\n")
    base, left = BaseModel("x", None, "x"), tmp_path / "left"
    left.mkdir()
    write_card(left, ExportInfo(folder, config, 1, "ema", FULL, base, "images"), Snippet("pass"))
    card = (left / "README.md").read_text()
    assert "````yaml\n" in card
    assert "\n  ```\n" in card
    assert card.count("````") == 2
    assert "- command: ``rlfactory 'text=`a`'``" in card


def test_an_empty_folder_is_taken(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert export(run, tmp_path / "empty") == 0
    assert (tmp_path / "empty" / "README.md").is_file()


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        SafetensorError(
            "Error while serializing: I/O error: No space left on device (os error 28)"
        ),
    ],
)
def test_a_failure_leaves_nothing_behind(
    error: Exception, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(export_module, "write_card", full)
    with pytest.raises(DiskError, match="left could not be written: No space left .*make room"):
        export(run, tmp_path / "left")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_can_not_be_written_is_said(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot be written"):
        export_module.export(run, tmp_path / "file" / "left", ExportOptions("ema"), False)


@pytest.mark.parametrize("style", ["comfyui", "--merge"])
def test_nothing_that_is_written_names_a_folder_of_this_machine(
    style: str, run: Path, tmp_path: Path
) -> None:
    words = [style] if style.startswith("--") else ["--format", style]
    assert export(run, tmp_path / "left", *words) == 0
    here = [str(folder).encode() for folder in (run, tmp_path, Path.cwd(), zoo_path("tiny_sd3"))]
    for path in (tmp_path / "left").rglob("*"):
        if path.is_file():
            assert [name for name in here if name in path.read_bytes()] == [], path


def test_the_cards_code_runs_in_its_folder(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert export(run, tmp_path / "red", "--format", "comfyui") == 0
    moved = shutil.move(tmp_path / "red", tmp_path / "moved")
    card = (moved / "README.md").read_text()
    assert "pipe.load_lora_weights('.', weight_name='red.safetensors')" in card
    assert "`.` is this folder" in card
    assert "ComfyUI reads `red.safetensors`" in card
    monkeypatch.chdir(moved)
    names: dict[str, object] = {}
    exec(card.partition("```python\n")[2].partition("```")[0], names)
    assert getattr(names["image"], "size", None) == (64, 64)


@pytest.mark.slow
def test_formats_of_image_adapters_are_refused_elsewhere(
    run: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="LoRA adapters of image models"):
        export(texts, tmp_path / "left", "--format", "comfyui")
    with pytest.raises(UserError, match="exports merged LoRA adapters of images; leave it out"):
        export(run, tmp_path / "left", "--merge", "--format", "comfyui")
    monkeypatch.setattr(SD3, "outside_comfyui", ("",))
    with pytest.raises(UserError, match="adapters of transformer_blocks, .* of StableDiffusion3Pi"):
        export(run, tmp_path / "left", "--format", "comfyui")
    assert not (tmp_path / "left").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "lost"),
    [
        (
            "flux2_klein",
            "double_stream_modulation_img, double_stream_modulation_txt, single_stream_modulation,"
            " time_guidance_embed",
        ),
        ("chroma", "distilled_guidance_layer"),
    ],
)
def test_adapters_that_comfyui_would_leave_out_are_told(
    family: str, lost: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = request.getfixturevalue(f"{family.partition('_')[0]}_folder")
    own = [f"model={family}", f"model.path={folder}", "model.text_tokens=128", "model.size=64"]
    run = checkpointed(tmp_path / "own", *own)
    assert export(run.path, tmp_path / "left", "--format", "comfyui") == 0
    run = checkpointed(tmp_path / "wide", *own, "model.lora_targets=all-linear")
    with pytest.raises(UserError, match=f"would leave out the adapters of {lost}, which it"):
        export(run.path, tmp_path / "all", "--format", "comfyui")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "adapter_model", "pytorch_lora_weights", "texts"])
def test_another_run_begins_from_what_was_exported(
    kind: str,
    run: Path,
    texts: Path,
    tmp_path: Path,
    refused: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = texts if kind == "texts" else run
    assert export(source, tmp_path / "left", "--weights", "policy") == 0
    given = tmp_path / "left"
    if kind not in ("folder", "texts"):
        given = given / f"{kind}.safetensors"
    words = ["model=tiny_gpt2"] if kind == "texts" else ["model.lora_rank=2"]
    words = [*words, "hardware=cpu", "model.finetune=lora", f"begin_from={given}"]
    model = build(plan_from_words(*words).config).model
    before = model.weights.full_state_dict()
    load_initial_weights(given, model)
    after = model.weights.full_state_dict()
    saved = load_file(RunFolder(source).checkpoints / "step_000001" / "weights.safetensors")
    moved = [key for key in before if not torch.equal(before[key], after[key])]
    assert moved
    assert all("lora_" in key for key in moved)
    for key in moved:
        assert torch.equal(after[key], saved[f"policy/{key.split('/', 1)[1]}"])
    if kind != "texts":
        for word in ("model.lora_rank=8", "model.lora_targets=[attn.to_q]"):
            capsys.readouterr()
            said = refused("check", *(w for w in words if "rank" not in w), word)
            assert f"begin_from={given} needs " in said


RANK, ALPHA = 2, 6.0
PIPELINES = {
    "tiny_sd": StableDiffusionPipeline,
    "tiny_sd3": StableDiffusion3Pipeline,
    "tiny_flux": FluxPipeline,
}
TARGETS = {
    "tiny_sd": ["to_q", "to_v", "to_out.0"],
    "tiny_sd3": ["attn.to_q", "attn.add_k_proj", "ff.net.0.proj"],
    "tiny_flux": ["attn.to_add_out", "attn.add_q_proj", "attn.add_v_proj", "ff.net.2"],
}


def pipeline(name: str) -> Any:
    pipe = PIPELINES[name].from_pretrained(zoo_path(name), dtype={"default": torch.float32})
    pipe.set_progress_bar_config(disable=True)
    return pipe


def adapted(network: Any, targets: LoraTargets) -> Lora:
    """With adapters that change what the network computes."""
    lora = Lora(network, rank=RANK, alpha=ALPHA, targets=targets)
    with torch.no_grad():
        for i, parameter in enumerate(lora.parameters().values()):
            generator = torch.Generator().manual_seed(i)
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return lora


def write(path: Path, lora: Lora, kind: str) -> None:
    write_lora_file(path, lora.state_dict(), pipeline=kind, rank=RANK, alpha=ALPHA)


def picture(pipe: Any) -> Tensor:
    options = {"height": 64, "width": 64, "num_inference_steps": 2, "output_type": "pt"}
    with torch.no_grad():
        return pipe("two stars", generator=torch.Generator().manual_seed(0), **options).images


@pytest.mark.slow
@pytest.mark.parametrize("name", PIPELINES)
def test_the_file_draws_the_same_picture(name: str, tmp_path: Path) -> None:
    ours, theirs = pipeline(name), pipeline(name)
    plain = picture(theirs)
    network = ours.unet if name == "tiny_sd" else ours.transformer
    write(tmp_path / "a.safetensors", adapted(network, TARGETS[name]), type(ours).__name__)
    theirs.load_lora_weights(tmp_path, weight_name="a.safetensors")
    expected = picture(ours)
    assert (expected - plain).abs().max() > 0.05
    torch.testing.assert_close(picture(theirs), expected, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_the_file_holds_all_layers_of_sdxl(sdxl_folder: Path, tmp_path: Path) -> None:
    ours, theirs = (StableDiffusionXLPipeline.from_pretrained(sdxl_folder) for _ in range(2))
    lora = adapted(ours.unet, "all-linear")
    write(tmp_path / "a.safetensors", lora, "StableDiffusionXLPipeline")
    theirs.load_lora_weights(tmp_path, weight_name="a.safetensors", adapter_name="a")
    found = get_peft_model_state_dict(theirs.unet, adapter_name="a")
    expected = lora.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    names = {name for name, _ in theirs.unet.named_modules()}
    read = read_adapters(tmp_path / "a.safetensors", "StableDiffusionXLPipeline", names)
    assert {name.removesuffix(".weight") for name in expected} == {
        name.removesuffix(".weight") for name in read.shapes
    }


def test_a_run_begins_from_kohyas_file(tmp_path: Path) -> None:
    """The plan reads its targets, rank and alpha; the run its values, by the names of modules."""
    file = tmp_path / "a.safetensors"
    lora = adapted(pipeline("tiny_sd").unet, TARGETS["tiny_sd"])
    write(file, lora, "StableDiffusionPipeline")
    words = ("model=tiny_sd", "hardware=cpu", f"begin_from={file}")
    model = instantiate_group(plan_from_words(*words).config, "model", device=torch.device("cpu"))
    assert (model.lora.config.r, model.lora.config.lora_alpha) == (RANK, ALPHA)
    load_initial_weights(file, model)
    expected = lora.state_dict()
    assert {*model.lora.state_dict()} == {*expected}
    for key, value in model.lora.state_dict().items():
        assert torch.equal(value, expected[key]), key
    merged = pipeline("tiny_sd").unet
    merge_start(merged, file, "StableDiffusionPipeline")
    merge_adapters(lora.network)
    for key, value in lora.network.state_dict().items():
        torch.testing.assert_close(merged.state_dict()[key], value)


def test_of_other_names_the_plan_says_what_converts_them(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    file = tmp_path / "a.safetensors"
    for key in ("lora_unet_input_blocks_1_1_proj_in.lora_down.weight", "diffusion_model.x.lora_A"):
        save_file({key: torch.zeros(2, 4)}, file)
        said = refused("check", "model=tiny_sd", f"begin_from={file}")
        assert said.count("error:") == 1
        assert "pipe.load_lora_weights" in said
