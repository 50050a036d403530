"""The benches' own arithmetic, and that each says what it is for."""

import ast
import importlib
import mmap
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "scripts" / "bench"


def is_command(path: Path) -> bool:
    return '__name__ == "__main__"' in path.read_text(encoding="utf-8")


COMMANDS = sorted(path.name for path in BENCH.glob("*.py") if is_command(path))
WORKERS = {f"{task}_{side}.py" for task in ("ppo", "ddpo") for side in ("rlfactory", "trl")}
WORKERS.add("grpo_trl.py")
"""Started by others, with a job."""


@pytest.fixture(scope="module")
def bench() -> Iterator[dict[str, ModuleType]]:
    sys.path.insert(0, str(BENCH))
    names = ("floor", "memory_growth", "scaling")
    yield {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(BENCH))


@pytest.mark.parametrize("name", sorted({*COMMANDS} - WORKERS))
def test_each_command_shows_how_it_is_typed(name: str) -> None:
    tree = ast.parse((BENCH / name).read_text(encoding="utf-8"))
    assert f"python scripts/bench/{name}" in (ast.get_docstring(tree) or "")


class Network(nn.Module):
    """Two layers, of which only the outermost call is one of a network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": self.layers(x) * scale}


def recorded(bench: dict[str, ModuleType]) -> tuple[Network, list[object]]:
    network = Network()
    recorder = bench["floor"].Recorder(torch.device("cpu"), lambda: "policy")
    x, scale = torch.ones(5, 3), torch.ones(1)
    with recorder.recording():
        recorder.phase = "sample"
        with torch.no_grad():
            network(x, scale=scale)
        recorder.phase = "learn"
        made = network((2 * scale).requires_grad_() * x, scale=scale)["out"]
        made.sum().backward()
    network(x, scale)  # by nobody
    return network, recorder.take()


def test_outermost_calls_are_recorded(bench: dict[str, ModuleType]) -> None:
    network, calls = recorded(bench)
    assert [(c.module is network, c.phase, c.learns) for c in calls] == [
        (True, "sample", False),
        (True, "learn", True),
    ]
    assert calls[1].args[0].is_leaf
    assert calls[1].args[0].requires_grad
    assert not calls[0].args[0].requires_grad


def test_the_floor_makes_them_again_with_their_backward_passes(
    bench: dict[str, ModuleType],
) -> None:
    network, calls = recorded(bench)
    passes: list[str] = []
    network.layers[0].register_forward_hook(lambda *_: passes.append("forward"))
    network.layers[0].register_full_backward_hook(lambda *_: passes.append("backward"))
    sets: list[str] = []

    def weights(name: str) -> torch.no_grad:
        sets.append(name)
        return torch.enable_grad()

    spent = bench["floor"].floor(calls, time.perf_counter, weights)
    assert passes == ["forward", "forward", "backward"]
    assert sets == ["policy", "policy"]
    assert set(spent) == {"sample", "learn"}
    assert min(spent.values()) > 0
    assert all(p.grad is None for p in network.parameters())


def touch(mebibytes: int) -> None:
    """Use memory and give it back at once; an allocator might take what it holds already."""
    with mmap.mmap(-1, mebibytes * 2**20) as block:
        block[::4096] = bytes(len(block) // 4096)


def test_peaks_are_of_what_comes_after_they_are_forgotten(bench: dict[str, ModuleType]) -> None:
    growth = bench["memory_growth"]
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the kernel keeps no such mark")
    touch(128)  # gone before
    growth.reset_peak()
    before = growth.resident("VmRSS")
    touch(64)
    grown = (growth.resident("VmHWM") - before) / growth.MIB
    assert 56 < grown < 80


def test_ratios_of_processes_are_to_one(bench: dict[str, ModuleType]) -> None:
    scaling = bench["scaling"]
    one, two = dict.fromkeys(scaling.PHASES, 3.0), dict.fromkeys(scaling.PHASES, 2.0)
    assert scaling.row("two", two, one) == "| two |" + " 2.00 (1.50 x) |" * len(scaling.PHASES)
