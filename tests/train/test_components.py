"""What the components of a run remember."""

import json
from collections.abc import Callable

import pytest
import torch

from rlfactory.train.components import Decay, TrainingBudget
from rlfactory.train.trainer import Trainer

Loop = Callable[..., Trainer]
STEERED = [
    *("algo=ddpo", "regularizer=kl_gaussian", "stop.reward=9", "stop.window=2", "iterations=3"),
    "regularizer.coefficient._target_=rlfactory.regularizer.coefficient.Proportional",
    *("+regularizer.coefficient.target=0.01", "+regularizer.coefficient.horizon=50"),
]


def test_all_non_tensor_state_is_restored(loop: Loop) -> None:
    first = loop(*STEERED)
    first.run(lambda *_: None)
    state = json.loads(json.dumps(first.state_dict()))
    assert state["updates"] == 6
    assert state["evaluations"] > 0
    assert state["coefficients"]["kl/coefficient"]["value"] != 1e-4
    assert len(state["advantage"]) > 0
    assert len(state["stop"]["past"]["reward"]) == 2
    second = loop(*STEERED)
    second.load_state_dict(state)
    assert second.state_dict() == state


def test_a_component_without_saved_state_keeps_its_initial_one(loop: Loop) -> None:
    plain = loop("algo=nft").state_dict()
    assert plain["coefficients"] == {}
    later = loop(*STEERED)
    later.load_state_dict(plain)
    assert later.components.regularizer.coefficients["kl/coefficient"].value > 0


def factor(
    iteration: int,
    *,
    total: int,
    warmup: int,
    final_scale: float = 0.2,
    zero_first: bool = False,
    schedule: Decay = "linear",
) -> float:
    budget = TrainingBudget(
        *(0, total, 1, 1, 1, 1, 1, 1.0, 1.0),
        warmup=warmup,
        final_scale=final_scale,
        zero_first=zero_first,
        schedule=schedule,
    )
    return budget.learning_rate_factor(iteration)


def course(total: int, warmup: int, zero_first: bool = False) -> list[float]:
    return [factor(i, total=total, warmup=warmup, zero_first=zero_first) for i in range(total)]


def test_golden() -> None:
    assert course(8, 3) == pytest.approx([1 / 3, 2 / 3, 1, 1, 0.8, 0.6, 0.4, 0.2])


def test_walkthrough() -> None:
    """0 at step 0, 1 at W, 0.2044 at 199 of 200, 0.2 only at 200 (language.md 1.9)."""
    found = course(200, 20, zero_first=True)
    assert found[0] == 0
    assert found[10] == 0.5
    assert found[20] == 1
    assert found[199] == pytest.approx(0.2044, abs=5e-5)
    assert factor(200, total=200, warmup=20, zero_first=True) == pytest.approx(0.2)


@pytest.mark.parametrize("warmup", [0, 1, 7, 98])
def test_ends_at_the_last_step_and_stays_there(warmup: int) -> None:
    found = course(100, warmup)
    assert found[warmup] == 1
    assert min(found) > 0
    assert found[99] == pytest.approx(0.2)
    assert factor(100, total=100, warmup=warmup) == pytest.approx(0.2)


@pytest.mark.parametrize("zero_first", [False, True])
def test_without_a_warmup_it_starts_at_one(zero_first: bool) -> None:
    found = course(5, 0, zero_first)
    assert found[0] == 1
    assert found == sorted(found, reverse=True)


def test_a_warmup_of_the_whole_run_has_no_decay() -> None:
    assert course(4, 4) == [0.25, 0.5, 0.75, 1]
    assert course(4, 4, zero_first=True) == [0, 0.25, 0.5, 0.75]
    for zero_first in (False, True):
        assert factor(4, total=4, warmup=4, zero_first=zero_first) == 1


@pytest.mark.parametrize("zero_first", [False, True])
def test_a_final_scale_of_one_holds_the_rate(zero_first: bool) -> None:
    found = [factor(s, total=6, warmup=2, final_scale=1.0, zero_first=zero_first) for s in range(6)]
    assert found[2:] == [1, 1, 1, 1]


def test_a_cosine_is_the_published_one() -> None:
    """torch's CosineAnnealingLR of T_max 4 from 1 to 0.2, behind the warm-up."""
    found = [factor(i, total=7, warmup=2, schedule="cosine") for i in range(7)]
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4, eta_min=0.2)
    theirs = []
    for _ in range(5):
        theirs.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert found == pytest.approx([0.5, 1.0, *theirs])
    # 0.2 + 0.8 (1 + cos(pi / 4)) / 2
    assert found[2:5] == pytest.approx([1.0, 0.2 + 0.4 * (1 + 0.5**0.5), 0.6])
