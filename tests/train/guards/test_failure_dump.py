"""From tensors to prompts: a micro-batch in the middle of an update, of pictures and of texts."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rlfactory.batch import Batch, TokenBatch
from rlfactory.rollout import Condition, Rollout, Tokens, Transitions
from rlfactory.train.guards.failure_dump import (
    MAX_FOLDERS,
    UpdatePosition,
    about,
    named_tensors,
    report_first,
    report_gradient,
    smallest,
    write_dump,
)
from rlfactory.train.guards.update_guard import CheckedMicroBatch, NonFiniteReport

FOUND = NonFiniteReport(
    iteration=12,
    update=2,
    micro_batch=1,
    rows={"the loss": [], "log-ratios": [1]},
    prompts=["ein Würfel", "b"],
    samples=[4, 5],
    facts={"loss": float("nan"), "norm": 2.0},
    tensors={"x": torch.tensor([1.0, torch.nan]), "mask": torch.tensor([True, False])},
)


def test_it_can_be_read(tmp_path: Path) -> None:
    place = write_dump(tmp_path / "evidence", FOUND)
    assert place == tmp_path / "evidence" / "iteration_000012"
    tensors = load_file(place / "batch.safetensors")
    assert tensors["mask"].tolist() == [True, False]
    assert tensors["x"].isnan().tolist() == [False, True]
    content = json.loads((place / "about.json").read_text(encoding="utf-8"))
    assert content == {
        "iteration": 12,
        "update": 2,
        "micro_batch": 1,
        "not_finite": {"the loss": [], "log-ratios": [1]},
        "prompts": ["ein Würfel", "b"],
        "samples": [4, 5],
        "facts": {"loss": "nan", "norm": 2.0},
        "left_out": [],
    }


def test_tensors_that_share_their_memory_are_kept_both(tmp_path: Path) -> None:
    whole = torch.arange(4.0, requires_grad=True)
    tensors = {"whole": whole, "part": whole[1:3], "turned": torch.ones(2, 3).T}
    place = write_dump(tmp_path, replace(FOUND, tensors=tensors))
    assert place is not None
    assert {k: [*v.shape] for k, v in load_file(place / "batch.safetensors").items()} == {
        "whole": [4],
        "part": [2],
        "turned": [3, 2],
    }


def test_of_many_the_first_and_the_newest_stay(tmp_path: Path) -> None:
    for iteration in (3, 4, 9, 11, 11, 20):
        write_dump(tmp_path, replace(FOUND, iteration=iteration, update=iteration))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["iteration_000003", "iteration_000004", "iteration_000020"]
    assert len(names) == MAX_FOLDERS


def test_the_same_iteration_once_more_is_told_anew(tmp_path: Path) -> None:
    for iteration, update in ((1, 1), (2, 1), (3, 1), (2, 2)):
        place = write_dump(tmp_path, replace(FOUND, iteration=iteration, update=update))
    assert place is not None
    assert json.loads((place / "about.json").read_text())["update"] == 2
    assert len([*tmp_path.iterdir()]) == 3


def test_what_can_not_be_written_hides_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.ERROR):
        assert write_dump(tmp_path / "file", FOUND) is None
    assert "the evidence could not be written" in caplog.text


def test_what_is_too_large_is_left_out_by_name() -> None:
    tensors = {"large": torch.zeros(100), "small": torch.zeros(2), "other": torch.zeros(3)}
    kept = smallest(tensors, limit=20)
    assert [*kept] == ["small", "other"]
    assert about(replace(FOUND, tensors=tensors), [*kept])["left_out"] == ["large"]


def test_tensors_are_named_by_where_they_are() -> None:
    t, p = torch.zeros(1), torch.ones(1)
    named = named_tensors(
        {"batch": Transitions(t, t, t, t, p), "metrics": {"ratio/mean": p}, "weight": 2}
    )
    assert [*named] == [
        "batch/t",
        "batch/t_next",
        "batch/x",
        "batch/next",
        "batch/log_prob",
        "metrics/ratio/mean",
    ]
    assert named["batch/log_prob"] is p


SAMPLES = Rollout(
    prompts=["a", "b", "c", "d"],
    metadata=[{}] * 4,
    groups=torch.arange(4),
    index=torch.tensor([10, 11, 12, 13]),
)
PLACE = UpdatePosition(iteration=4, update=1)
LOSS = torch.tensor(torch.nan)
METRICS = {"loss/policy": torch.tensor([0.5, torch.nan]), "mean": torch.tensor([torch.inf])}


def test_items_of_pictures_know_their_sample() -> None:
    zeros = torch.zeros(2)
    samples = torch.tensor([1, 3])
    chunk = Batch(zeros, zeros, zeros, Condition({"c": zeros}), zeros, sample=samples)
    masks = {"log-ratios": torch.tensor([False, True])}
    checked = CheckedMicroBatch(1, masks, LOSS, METRICS)
    found = report_first(checked, [chunk, chunk, chunk], SAMPLES, PLACE)
    assert (found.iteration, found.update, found.micro_batch) == (5, 2, 2)
    assert found.prompts == ["b", "d"]
    assert found.samples == [11, 13]
    assert found.rows == {"log-ratios": [1], "loss/policy": [1], "mean": []}
    assert found.suspects == ["d"]
    assert str(found.facts["loss"]) == str(found.facts["loss/policy"]) == "nan"
    assert {"batch/condition/tensors/c", "metrics/loss/policy"} <= {*found.tensors}


def test_texts_follow_one_another() -> None:
    ids, mask = torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 1, dtype=torch.bool)
    zeros = torch.zeros(2, 1)
    tokens = Tokens(ids, mask, ids, mask, mask[:, 0], zeros, zeros)
    chunk = TokenBatch(tokens, zeros, zeros)
    found = report_first(CheckedMicroBatch(1, {}, LOSS, METRICS), [chunk] * 2, SAMPLES, PLACE)
    assert found.prompts == ["c", "d"]
    assert found.samples == [12, 13]
    assert found.suspects == ["d"]
    assert "batch/tokens/response" in found.tensors


def test_a_gradient_is_of_all_of_an_update(loop: Callable[..., Any]) -> None:
    trainer = loop("algo=grpo")
    rollout, _ = trainer.score(trainer.sample(0))
    items = trainer.components.algo.training_items(
        rollout, trainer.components.model, seed=0, iteration=0
    )
    found = report_gradient(float("inf"), items, rollout, PLACE)
    assert found.micro_batch is None
    assert found.rows == {"the gradient's norm": []}
    assert found.samples == [*range(12)]
    assert found.suspects == [*dict.fromkeys(rollout.prompts)]
    assert found.facts == {"norm": float("inf")}
    assert found.tensors["batch/x"] is items.x
