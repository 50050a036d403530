"""Lines of metrics and tensors differ in what counts; test_verify.py plants differences in runs."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.tools.bit_differences import metrics_differences, same_bits, tensor_differences

Line = dict[str, Any]
LINES: list[Line] = [
    {"iteration": 0, "time": 1.0, "eval/taste/mean": 0.5},
    {"iteration": 1, "time": 2.0, "loss": 0.1, "time/learn": 3.0},
    {"iteration": 2, "time": 3.0, "loss": 0.2, "memory/peak_gb": 1.0},
    {"iteration": 2, "time": 4.0, "eval/taste/mean": 0.6},
]


def changed(number: int, **values: Any) -> list[Line]:
    return [line | values if i == number else line for i, line in enumerate(LINES)]


def found(recorded: list[Line], *, begin: int = 1, is_done: bool = True) -> list[str]:
    return [*metrics_differences(recorded, LINES, (begin, 2), is_done=is_done)]


def test_times_and_memory_do_not_count() -> None:
    lines = changed(2, **{"time": 9.0, "memory/peak_gb": 7.0, "time/learn": 3.0})
    assert found(lines) == []
    assert found(LINES, begin=0) == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (changed(2, loss=0.3), "iteration 2: loss is 0.3, and 0.2"),
        (changed(2, loss=None), "loss is None"),
        (changed(2, extra=1.0), "extra is 1.0, and missing"),
        (changed(2, **{"loss/a": 1, "advantage/std": 2, "ratio/b": 3}), "2: advantage/std is 2"),
        (changed(3, **{"eval/taste/mean": 0.7}), "eval/taste/mean is 0.7"),
        (LINES[:2], "lacks the line of evaluation at iteration 2"),
        ([*LINES, LINES[2]], "more than one line of training at iteration 2"),
        (changed(2, iteration=3), "lacks the line of training at iteration 2"),
    ],
)
def test_other_lines_are_found(lines: list[Line], message: str) -> None:
    assert any(message in line for line in found(lines))


def test_a_run_that_was_stopped_may_lack_its_last_evaluation() -> None:
    assert found(LINES[:3], is_done=False) == []
    assert found(LINES[:3]) != []


def test_a_line_that_training_did_not_write_is_found() -> None:
    extra = [*metrics_differences(LINES, LINES[:2], (1, 2), is_done=True)]
    assert extra == ["metrics.jsonl has a line of iteration 2 that training did not write"]


ONE = torch.tensor([1.0, 0.0, torch.nan])


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (ONE.clone(), True),
        (torch.tensor([1.0, -0.0, torch.nan]), False),
        (torch.tensor([1.0 + 2**-23, 0.0, torch.nan]), False),
        (ONE.half(), False),
        (ONE[None], False),
        (None, False),
    ],
)
def test_tensors_are_compared_by_their_bits(other: Tensor | None, is_same: bool) -> None:
    assert same_bits(ONE, other) is is_same


def test_the_first_tensor_that_differs_is_named_with_its_deviation() -> None:
    former = {"a": torch.ones(3), "b": torch.ones(4), "c": torch.ones(2)}
    new = {"a": torch.ones(3), "b": torch.tensor([1.0, 1.0, 1.5, 1.0]), "c": torch.zeros(2)}
    [line] = tensor_differences(former, new, "weights")
    assert line == (
        "weights: b differs in 1 of 4 values, by 0.5 at most; 1 more of 3 tensors differ"
    )
    [line] = tensor_differences({"a": torch.ones(3)}, {"a": torch.ones(2)}, "weights")
    assert "a is torch.float32 [3], and torch.float32 [2]" in line
    [line] = tensor_differences({"a": torch.ones(3)}, {}, "weights")
    assert "a is in one of the checkpoints alone" in line
    assert [*tensor_differences(former, former, "weights")] == []
