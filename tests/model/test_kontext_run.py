"""Prompts with pictures in a run: trained, evaluated, resumed, sampled; a tiny random Kontext."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import rlfactory as rl
from rlfactory.cli.app import dispatch
from rlfactory.config.problems import PlanError
from rlfactory.prompts.base import PromptError
from rlfactory.run.metrics import read
from rlfactory.train import build

WORDS = [
    *("model=flux_kontext", "model.size=64", "model.text_tokens=16", "prompt_cache=null"),
    *("recipe=none", "precision=fp32", "hardware=cpu", "schedule.steps=2", "evaluation.steps=2"),
    *("prompts_per_iteration=2", "group_size=2", "updates_per_iteration=1", "micro_batch=4"),
    *("sample_batch=4", "evaluation.prompts=2", "evaluation.grid=2", "optimizer.lr=0.01"),
]


@pytest.fixture(scope="module")
def run(flux_kontext_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three iterations on edits of shapes."""
    path = tmp_path_factory.mktemp("edits") / "run"
    words = [*WORDS, f"model.path={flux_kontext_folder}", "iterations=3", "algo=nft"]
    rl.train(
        *words, "advantage=tracker", "advantage.min_count=2", "reward=compressibility", run_dir=path
    )
    return path


def brightness(images: Any, prompts: Any, metadata: Any) -> list[float]:
    """A reward of images."""
    return [float(image.float().mean()) for image in images]


def test_it_trains_on_edits(run: Path) -> None:
    records = [record for record in read(run / "metrics.jsonl") if "grad/norm" in record]
    assert len(records) == 3
    assert all(record["grad/norm"] > 0 for record in records)


def test_grids_show_pictures_beside_results(run: Path) -> None:
    scores = json.loads((run / "evaluations" / "000003.json").read_text())
    assert scores["prompts"][0] == "make the cross purple"
    before, after = (Image.open(run / "samples" / f"eval_00000{i}.png") for i in (0, 3))
    assert before.size == after.size
    grey = {pixel for _, pixel in after.getcolors(10**6) if len({*pixel}) == 1 and pixel[0] > 190}
    assert len(grey - {(255, 255, 255)}) >= 2, "the backgrounds of two pictures"


def test_sampling_takes_a_picture_for_each_prompt(run: Path, tmp_path: Path) -> None:
    Image.new("RGB", (96, 96), "red").save(tmp_path / "red.png")
    given = ["sample", str(run), "--prompt", "make it blue", "--steps", "2"]
    given += ["--image", str(tmp_path / "red.png"), "--out", str(tmp_path / "out")]
    assert dispatch(given) == 0
    assert Image.open(tmp_path / "out" / "000.png").size == (64, 64)
    asked = tmp_path / "asked.jsonl"
    asked.write_text(json.dumps({"prompt": "make it blue", "image": "red.png"}))
    of_file = ["sample", str(run), "--prompts", str(asked), "--steps", "2"]
    assert dispatch([*of_file, "--out", str(tmp_path / "again")]) == 0
    first, second = ((tmp_path / name / "000.png").read_bytes() for name in ("out", "again"))
    assert first == second


def test_sampling_without_a_picture_says_what_to_type(run: Path) -> None:
    given = ["sample", str(run), "--prompt", "make it blue"]
    with pytest.raises(PromptError, match="--image FILE beside each --prompt"):
        dispatch(given)
    for images, said in [(["no.png"], "there is no picture"), (["a", "b"], "2 pictures for 1 pr")]:
        with pytest.raises(PlanError, match=said):
            dispatch([*given, *(word for path in images for word in ("--image", path))])


@pytest.mark.parametrize(
    ("model", "row", "said"),
    [
        ("kontext", {}, "has no picture, and this model edits pictures; type prompts=edits"),
        (
            "kontext",
            {"image": Image.new("RGB", (64, 32))},
            "has 32 x 64 pixels, and pictures are resized to model.size, 64 x 64",
        ),
        ("dev", {"image": Image.new("RGB", (8, 8))}, "type model=flux_kontext, or prompts"),
    ],
)
def test_prompts_in_memory_are_checked_before_the_model_is_loaded(
    model: str,
    row: dict[str, object],
    said: str,
    flux_folders: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build, "_build_model", lambda *_: pytest.fail("it was loaded"))
    option = "flux_kontext" if model == "kontext" else "flux"
    words = [f"model={option}", f"model.path={flux_folders[model]}", *WORDS[1:], "iterations=1"]
    rows = [{"prompt": "a", **row}]
    with pytest.raises(PromptError, match=said):
        rl.train(*words, reward=brightness, prompts=rows, run_dir=tmp_path / "run")
