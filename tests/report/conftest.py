"""Run folders and sweeps as training leaves them, for the tests of reports; no network is run."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from rlfactory.run.loggers.base import sample_table
from rlfactory.run.scores import Scores
from rlfactory.sweep.table import Column, Job, Row, Table, TableInfo

PROMPTS = ["a red circle", "two squares", "a <b>bold</b> | star"]
ABOUT = TableInfo("Shapes & shares", "A paper", "Table 1", 12.5, "not yet", "within 0.05")


def _make_run(
    path: Path,
    *,
    seed: int = 0,
    status: str = "done",
    score: str = "shapes",
    before: float = 0.2,
    after: float = 0.8,
    iterations: int = 4,
    media: str | None = None,
    config: Mapping[str, Any] | None = None,
    choices: Mapping[str, str] | None = None,
) -> Path:
    """A run whose held-out score rises in a straight line from `before` to `after`."""
    (path / "samples" / "strip").mkdir(parents=True)
    (path / "evaluations").mkdir()
    (path / "STATUS").write_text(f"{status}\n")
    chosen = {"algo": "nft", "reward": score, "model": "tiny_sd3", **(choices or {})}
    content = {
        "seed": seed,
        "iterations": iterations,
        "optimizer": {"lr": 0.001},
        "algo": {"_target_": chosen["algo"]},
        "evaluation": {"prompts": len(PROMPTS)},
        "run_dir": str(path),
        **(config or {}),
        "choices": chosen,
    }
    (path / "config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    reached = iterations if status == "done" else iterations // 2
    lines = _lines(score, before, after, iterations, reached)
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ends = {0: before} | ({iterations: after} if status == "done" else {})
    for iteration, mean in ends.items():
        values = np.array([mean - 0.1, mean, mean + 0.1])
        Scores(PROMPTS, {score: values}, diversity=0.3).save(
            path / "evaluations" / f"{iteration:06d}.json"
        )
        if media is not None:
            _samples(path / "samples", media, iteration)
    return path


def _make_sweep(
    folder: Path,
    *,
    columns: Sequence[Column] = (Column("shapes", "Shapes", "eval/shapes"),),
    rows: Sequence[Row] = (
        Row("NFT", {"shapes": 0.9}, "fast"),
        Row("GRPO", {"shapes": 0.7}),
        Row("FLUX.1", {"shapes": 0.5}),
    ),
    jobs: Sequence[Job] = (
        Job("nft-s0", "NFT", "nft-s0", [], {"seed": 0}),
        Job("nft-s1", "NFT", "nft-s1", [], {"seed": 1}),
        Job("grpo-s0", "GRPO", "grpo-s0", [], {"seed": 0}),
        Job("grpo-s1", "GRPO", "grpo-s1", [], {"seed": 1}),
    ),
    size: str = "tiny",
) -> Path:
    """A sweep's folder with its table, without its runs."""
    folder.mkdir(parents=True)
    Table("made", size, ABOUT, list(columns), list(rows), list(jobs)).save(folder)
    return folder


def _filled_sweep(folder: Path) -> Path:
    """A sweep with all four runs."""
    _make_sweep(folder)
    for algo, gain in (("nft", 0.6), ("grpo", 0.4)):
        for seed in (0, 1):
            after = 0.2 + gain + 0.1 * seed
            choices = {"algo": algo}
            _make_run(folder / f"{algo}-s{seed}", seed=seed, after=after, choices=choices)
    return folder


def _lines(
    score: str, before: float, after: float, iterations: int, reached: int
) -> list[dict[str, float | None]]:
    lines: list[dict[str, float | None]] = [_evaluation(score, 0, before)]
    for i in range(1, reached + 1):
        mean = before + (after - before) * i / iterations
        trained = {f"reward/{score}/mean": mean, "kl/reference": 0.01 * i, "nfe/total": 1000.0 * i}
        lines.append({"iteration": i, "time": float(i), **trained, "loss/policy": None})
    return [*lines, *([_evaluation(score, iterations, after)] if reached == iterations else [])]


def _evaluation(score: str, iteration: int, mean: float) -> dict[str, float | None]:
    values = {f"eval/{score}/mean": mean, "eval/diversity": 0.3, f"eval/{score}/two": None}
    return {"iteration": iteration, "time": float(iteration), **values}


def _samples(folder: Path, media: str, iteration: int) -> None:
    if media == "texts":
        (folder / f"eval_{iteration:06d}.md").write_text("# texts\n")
        texts = [f"{prompt}, {iteration}" for prompt in PROMPTS]
        (folder / "strip" / f"{iteration:06d}.json").write_text(json.dumps(texts))
        scores = {"shapes": [0.1 * iteration, 0.5, float("nan")]}
        table = sample_table("texts", PROMPTS, texts, scores)
        table.save(folder / f"eval_{iteration:06d}.json")
        return
    picture = Image.new("RGB", (16, 16), (20 * iteration, 90, 160))
    picture.save(folder / f"eval_{iteration:06d}.png")
    picture.save(folder / "strip.png")
    for row in range(2):
        picture.save(folder / "strip" / f"{iteration:06d}_{row}.png")


@pytest.fixture
def make_run() -> Callable[..., Path]:
    """Makes a run."""
    return _make_run


@pytest.fixture
def make_sweep() -> Callable[..., Path]:
    """Makes a sweep without runs."""
    return _make_sweep


@pytest.fixture
def filled_sweep() -> Callable[..., Path]:
    """Makes a sweep with its runs."""
    return _filled_sweep
