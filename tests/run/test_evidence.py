import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rlfactory.batch import Taken
from rlfactory.run.evidence import FOLDERS, Evidence, about, named_tensors, small
from rlfactory.run.guards import Finding

FOUND = Finding(
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
    place = Evidence(tmp_path / "evidence")(FOUND)
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
    place = Evidence(tmp_path)(replace(FOUND, tensors=tensors))
    assert place is not None
    assert {k: [*v.shape] for k, v in load_file(place / "batch.safetensors").items()} == {
        "whole": [4],
        "part": [2],
        "turned": [3, 2],
    }


def test_of_many_the_first_and_the_newest_stay(tmp_path: Path) -> None:
    keep = Evidence(tmp_path)
    for iteration in (3, 4, 9, 11, 11, 20):
        keep(replace(FOUND, iteration=iteration, update=iteration))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["iteration_000003", "iteration_000004", "iteration_000020"]
    assert len(names) == FOLDERS


def test_the_same_iteration_once_more_is_told_anew(tmp_path: Path) -> None:
    keep = Evidence(tmp_path)
    for iteration, update in ((1, 1), (2, 1), (3, 1), (2, 2)):
        place = keep(replace(FOUND, iteration=iteration, update=update))
    assert place is not None
    assert json.loads((place / "about.json").read_text())["update"] == 2
    assert len([*tmp_path.iterdir()]) == 3


def test_what_can_not_be_written_hides_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.ERROR):
        assert Evidence(tmp_path / "file")(FOUND) is None
    assert "the evidence could not be written" in caplog.text


def test_what_is_too_large_is_left_out_by_name() -> None:
    tensors = {"large": torch.zeros(100), "small": torch.zeros(2), "other": torch.zeros(3)}
    kept = small(tensors, limit=20)
    assert [*kept] == ["small", "other"]
    assert about(replace(FOUND, tensors=tensors), [*kept])["left_out"] == ["large"]


def test_tensors_are_named_by_where_they_are() -> None:
    t, p = torch.zeros(1), torch.ones(1)
    named = named_tensors({"batch": Taken(t, t, p), "metrics": {"ratio/mean": p}, "weight": 2})
    assert [*named] == [
        "batch/t_next",
        "batch/next",
        "batch/log_prob",
        "metrics/ratio/mean",
    ]
    assert named["batch/log_prob"] is p
