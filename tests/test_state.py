"""What moves besides tensors: saved as JSON, and taken up again."""

import json
from collections.abc import Callable

from rlfactory.state import state_of, take_up
from rlfactory.trainer import Trainer

Loop = Callable[..., Trainer]
STEERED = [
    *("algo=ddpo", "regularizer=kl_gaussian", "stop.reward=9", "stop.window=2", "iterations=3"),
    "regularizer.coefficient._target_=rlfactory.regularizer.coefficient.Proportional",
    *("+regularizer.coefficient.target=0.01", "+regularizer.coefficient.horizon=50"),
]


def test_all_of_it_comes_back(loop: Loop) -> None:
    first = loop(*STEERED)
    first.run(lambda *_: None)
    state = json.loads(json.dumps(state_of(first)))
    assert state["updates"] == 6
    assert state["evaluations"] > 0
    assert state["coefficients"]["kl/coefficient"]["value"] != 1e-4
    assert len(state["advantage"]) > 0
    assert len(state["stop"]["past"]["reward"]) == 2
    second = loop(*STEERED)
    take_up(second, state)
    assert state_of(second) == state


def test_a_part_that_is_new_begins_its_own(loop: Loop) -> None:
    plain = state_of(loop("algo=nft"))
    assert plain["coefficients"] == {}
    later = loop(*STEERED)
    take_up(later, plain)
    assert later.parts.regularizer.coefficients["kl/coefficient"].value > 0
