import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.algo.base import Loss
from rlfactory.batch import Batch, Outputs, TokenBatch, TokenOutputs
from rlfactory.dynamics.base import Step
from rlfactory.hardware.local import Local
from rlfactory.rollout import Condition, Tokens, Transitions
from rlfactory.train.guards.update_guard import (
    CheckedMicroBatch,
    Guard,
    GuardError,
    NonFiniteReport,
    describe,
    find_nonfinite,
    first_nonfinite,
    rows,
)
from rlfactory.utils.errors import TrainingError

CPU = Local(device="cpu")


def finding(update: int = 2, **changes: object) -> NonFiniteReport:
    facts: dict[str, object] = {
        "iteration": 12,
        "update": update,
        "micro_batch": 3,
        "rows": {"log-ratios": [1, 3], "the loss": []},
        "prompts": ["a", "b", "c", "b"],
        "samples": [4, 5, 6, 7],
    }
    return NonFiniteReport(**{**facts, **changes})  # type: ignore[arg-type]


class Others(Local):
    """One of several processes; another one has found something."""

    def first_rank_where(self, flag: bool) -> int:
        return 1

    def broadcast(self, value: Any, source: int = 0) -> Any:
        assert source == 1
        return "its words"


def test_what_is_finite_passes() -> None:
    guard = Guard()
    assert not guard.rejects(None, CPU)
    assert guard.consecutive == 0
    assert guard.metrics() == {}


def test_the_message_names_what_where_of_whom_and_what_to_try() -> None:
    guard = Guard(recorder=lambda found: Path("run/evidence/iteration_000012"))
    with pytest.raises(GuardError) as stopped:
        guard.rejects(finding(), CPU)
    assert isinstance(stopped.value, TrainingError)
    assert str(stopped.value) == (
        "Not finite: log-ratios of 2 of 4 items, the loss; iteration 12, update 2, micro-batch 3;"
        " this update was not made. Prompts: 'b'. Evidence: run/evidence/iteration_000012."
        " Try a smaller optimizer.lr or precision=fp32, or leave such updates out, at most 3 in a"
        " row: guard.non_finite=skip"
    )


def test_of_many_prompts_the_first_are_named() -> None:
    prompts = [f"prompt {n}" for n in range(9)]
    said = describe(finding(prompts=prompts, rows={"the loss": []}), None)
    assert "Prompts: 'prompt 0', 'prompt 1', 'prompt 2' and 6 more." in said
    assert "Evidence" not in said


def test_a_gradient_belongs_to_no_micro_batch() -> None:
    said = describe(finding(micro_batch=None, rows={"the gradient's norm": []}), None)
    assert said.startswith("Not finite: the gradient's norm; iteration 12, update 2; this")


def test_so_many_in_a_row_are_left_out_and_the_first_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[NonFiniteReport] = []

    def record(found: NonFiniteReport) -> Path:
        seen.append(found)
        return Path(f"kept_{found.update}")

    guard = Guard("skip", 2, record)
    guard.begin()
    with caplog.at_level(logging.WARNING):
        assert [guard.rejects(finding(n), CPU) for n in (1, 2)] == [True, True]
    assert guard.metrics() == {"guard/skipped": 2.0}
    with pytest.raises(GuardError, match=r"kept_1\. It is number 3 in a row, and guard\.max_skip"):
        guard.rejects(finding(3), CPU)
    assert [found.update for found in seen] == [1]
    assert "It is left out, number 2 in a row" in caplog.text


def test_an_update_that_is_made_begins_a_new_row() -> None:
    places = iter(map(Path, "ab"))
    guard = Guard("skip", 1, lambda found: next(places))
    for _ in range(2):
        assert guard.rejects(finding(), CPU)
        guard.accepted()
    assert next(places, None) is None, "each row has its evidence"
    assert guard.skipped == 2, "the iteration's count is another one"
    guard.begin()
    assert guard.metrics() == {"guard/skipped": 0.0}


def test_what_another_process_found_is_told_in_its_words() -> None:
    guard = Guard("skip", 1, lambda found: Path("never"))
    assert guard.rejects(None, Others(device="cpu"))
    with pytest.raises(GuardError, match="its words It is number 2 in a row"):
        guard.rejects(None, Others(device="cpu"))


INF, NAN = torch.inf, torch.nan
PIXELS = torch.zeros(3, 1, 2, 2)
MASK = torch.tensor([[True, True], [True, False]])


def with_row(value: float, row: int = 1, count: int = 3) -> Tensor:
    values = torch.zeros(count)
    values[row] = value
    return values


def batch() -> Batch:
    return Batch(
        x=PIXELS,
        t=torch.zeros(3),
        x0=PIXELS,
        sample=torch.arange(3),
        condition=Condition({}),
        advantage=torch.zeros(3),
        replayed=Transitions(torch.zeros(3), torch.zeros(3), PIXELS, PIXELS, torch.zeros(3)),
        old_log_prob=torch.zeros(3),
    )


def outputs() -> Outputs:
    return Outputs(PIXELS, Step(PIXELS, PIXELS, PIXELS, torch.zeros(3)), torch.zeros(3))


def token_batch() -> TokenBatch:
    ids, flat = torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 2)
    tokens = Tokens(ids, MASK, ids, MASK, torch.ones(2, dtype=torch.bool), flat, flat)
    return TokenBatch(tokens, flat, flat)


def token_outputs() -> TokenOutputs:
    return TokenOutputs(torch.zeros(3), torch.zeros(3, 5), torch.zeros(3))


def found(of: Batch | TokenBatch, said: object, total: float = 0.0) -> dict[str, list[int]]:
    loss = Loss(torch.tensor(total), said, {})
    wrong = find_nonfinite(of, loss, torch.tensor(total))
    named = rows(wrong, of)
    checked = CheckedMicroBatch(0, wrong, loss.value, {})
    assert (first_nonfinite([checked]) is None) is (not named)
    return named


def test_what_is_finite_is_sound() -> None:
    assert found(batch(), outputs()) == {}
    assert found(token_batch(), token_outputs()) == {}


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_of_steps(value: float) -> None:
    of, said = batch(), outputs()
    assert of.replayed is not None
    assert found(of, said, value) == {"the loss": []}
    bad = with_row(value)
    assert found(replace(of, advantage=bad), said) == {"advantages": [1]}
    taken = replace(of.replayed, log_prob=bad)
    assert found(replace(of, replayed=taken), said) == {"log-probabilities as sampled": [1]}
    assert found(of, replace(said, log_ratio=bad)) == {"log-ratios": [1]}


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_likelihood_is_finite(value: float) -> None:
    expected = {"log-probabilities": [1]}
    step = replace(outputs().require_step(), log_prob=with_row(value))
    assert found(batch(), replace(outputs(), step=step)) == expected
    # the third real token is the second response's
    spoken = replace(token_outputs(), log_prob=with_row(value, 2))
    assert found(token_batch(), spoken) == expected


def test_what_is_not_remembered_is_not_wrong() -> None:
    assert found(replace(batch(), old_log_prob=with_row(NAN)), outputs()) == {}
    assert found(replace(batch(), old_log_prob=with_row(INF)), outputs()) == {
        "remembered likelihoods": [1]
    }
    assert found(replace(batch(), old_log_prob=None, replayed=None), outputs()) == {}


def test_of_real_tokens_alone() -> None:
    of, said = token_batch(), token_outputs()
    padding, real = torch.zeros(2, 2), torch.zeros(2, 2)
    padding[1, 1] = real[1, 0] = NAN
    for value, rows_of in ((padding, None), (real, [1])):
        tokens = replace(of.tokens, log_prob=value, value=value)
        named = found(replace(of, tokens=tokens, advantage=value, returns=value), said)
        names = ["advantages", "returns", "log-probabilities as sampled", "values"]
        assert named == ({} if rows_of is None else dict.fromkeys(names, rows_of))
    assert found(of, replace(said, value=with_row(NAN, 2))) == {"the critic's values": [1]}


@pytest.mark.parametrize(("column", "is_wrong"), [(2, True), (3, False)])
def test_of_states_after_the_end_too(column: int, is_wrong: bool) -> None:
    of = token_batch()
    after = torch.tensor([[True, True, True, False], [True, True, True, False]])
    states = replace(of.tokens, response=torch.zeros(2, 4, dtype=torch.int64), mask=after)
    returns = torch.zeros(2, 4)
    returns[1, column] = float("nan")
    said = found(replace(of, states=states, returns=returns), token_outputs())
    assert ("returns" in said) is is_wrong


def test_the_prediction_names_its_items() -> None:
    prediction = PIXELS.clone()
    prediction[2, 0, 0, 1] = NAN
    wrong = found(batch(), replace(outputs(), prediction=prediction))
    assert wrong == {"the network's prediction": [2]}


def test_an_algorithm_of_others_may_say_anything() -> None:
    assert found(batch(), {"whatever": 1}) == {}
    assert found(batch(), None, NAN) == {"the loss": []}


@pytest.mark.parametrize(("bad", "first"), [({2, 4}, 2), ({4}, 4), ({0, 1}, 0), (set(), None)])
def test_the_first_micro_batch_that_is_not_finite_is_found(
    bad: set[int], first: int | None
) -> None:
    checked = []
    for number in range(5):
        total = torch.tensor(NAN if number in bad else 0.0)
        checked.append(CheckedMicroBatch(number, {"the loss": ~total.isfinite()}, total, {}))
    found = first_nonfinite(checked)
    assert (None if found is None else found.number) == first
    assert first_nonfinite([]) is None
