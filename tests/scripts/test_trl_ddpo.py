"""The comparison with TRL's DDPO: what is run on both sides, and what is made of the figures."""

import importlib
import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from warm_process import Warm

BENCH = Path(__file__).parents[2] / "scripts" / "bench"
ASKED = Namespace(samples=24, updates=8, steps=20, sample_rows=6, rows=3, items=[12, 60])


@pytest.fixture(scope="module", autouse=True)
def bench() -> Iterator[None]:
    sys.path.insert(0, str(BENCH))
    yield
    sys.path.remove(str(BENCH))


@pytest.fixture(scope="module")
def trl_ddpo() -> ModuleType:
    return importlib.import_module("trl_ddpo")


def measured(rows: float = 960.0) -> dict[str, Any]:
    """A process's report of the rows that it asked the network for."""
    return {"asked": {"rollout rows": rows, "learn rows": 960.0}}


def test_trl_learns_from_one_step_of_an_update_at_once_and_we_from_several(
    trl_ddpo: ModuleType,
) -> None:
    sides = trl_ddpo.sides(ASKED)
    assert {name: tuple(own.values()) for name, (_, own) in sides.items()} == {
        "TRL": (6, 3),
        "TRL, at once": (24, 3),
        "rlfactory": (6, 3),
        "rlfactory, 12 items": (24, 12),
        "rlfactory, 60 items": (24, 60),
    }


def test_sides_that_ask_the_network_for_more_are_refused(trl_ddpo: ModuleType) -> None:
    trl_ddpo.require_alike({"TRL": [measured()], "rlfactory": [measured()]})
    with pytest.raises(SystemExit, match="differ"):
        trl_ddpo.require_alike({"TRL": [measured()], "rlfactory": [measured(480)]})


def test_rows_are_counted_with_and_without_a_gradient() -> None:
    layer = torch.nn.Linear(2, 2)
    asked = importlib.import_module("network").NetworkCalls(layer)
    layer(torch.zeros(3, 2))
    with torch.no_grad():
        layer(torch.zeros(5, 2))
        layer(torch.zeros(5, 2))
    counts = asked.an_iteration(2)
    assert counts == {
        "rollout rows": 5.0,
        "rollout passes": 1.0,
        "learn rows": 1.5,
        "learn passes": 0.5,
    }


def test_laps_are_those_of_each_iteration() -> None:
    laps = importlib.import_module("probe").Laps()
    for _ in range(2):
        laps.lap("rollout")
        laps.end("learn")
    first, second = laps.iterations
    assert first is not second
    assert [*first] == [*second] == ["rollout", "rollout cpu", "learn", "learn cpu"]


@pytest.mark.slow
def test_our_side_learns_from_every_step_of_every_sample(
    trl_ddpo: ModuleType, warm: Warm, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a red circle\na blue square\n")
    job = {"samples": 4, "updates": 2, "steps": 3, "guidance": 5.0, "finetune": "lora"}
    job |= {"sample_rows": 4, "rows": 6, "iterations": 1, "threads": 1, "more": []}
    job |= {"pipeline": str(trl_ddpo.PIPELINE), "prompts": str(prompts)}
    script = str(BENCH / "ddpo_rlfactory.py")
    done = warm.command(tmp_path, json.dumps(job), script=script)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    # guidance asks each twice; an update has 2 samples of 3 steps, which are 6 items
    assert found["asked"] == {
        "rollout rows": 24.0,
        "rollout passes": 3.0,
        "learn rows": 24.0,
        "learn passes": 2.0,
    }
    assert [*found["iterations"][0]] == ["rollout", "rollout cpu", "learn", "learn cpu"]
