"""What the components of a run remember."""

import json
from collections.abc import Callable

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
