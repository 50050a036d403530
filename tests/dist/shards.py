"""One rank that trains, saves or loads a sharded network; not a test.

`python shards.py ACTION FOLDER` prints one JSON object; torchrun's variables say which rank it is.
"""

import errno
import gc
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.tensor import DTensor

from rlfactory.hardware.base import Hardware
from rlfactory.hardware.distributed import Distributed
from rlfactory.hardware.local import Local
from rlfactory.model.weight_sets import EMA, REFERENCE, WeightSets
from rlfactory.run.atomic_write import flush  # noqa: F401  (imported before memory is measured)
from rlfactory.run.checkpoint import sharded  # noqa: F401
from rlfactory.run.checkpoint.load import load_checkpoint, load_optimizer
from rlfactory.run.checkpoint.save import begin_checkpoint, begin_part, checkpoint_bytes
from rlfactory.utils.processes import exit_at_once

STILL = ("blocks.2.weight", "last.bias")
"""Parameters that never have a gradient, so that the optimizer knows nothing of them."""
WIDTH, BLOCKS = int(os.environ.get("WIDTH", "5")), 6


class Net(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.blocks = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(BLOCKS)])
        self.last = nn.Linear(WIDTH, 1)  # one row: other ranks than 0 have none

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x).tanh()
        out: Tensor = self.last(x)
        return out


def make(seed: int) -> tuple[Any, torch.optim.Optimizer, Hardware]:
    """A model with a value head, which is in full in every rank, and its optimizer."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    strategy: Any = {"device": "cpu", "strategy": "fsdp2", "processes": count}
    hardware = Distributed(**strategy) if count > 1 else Local(device="cpu")
    network, head = Net(seed), nn.Linear(WIDTH, 1)
    critic = {f"critic.{name}": p for name, p in head.named_parameters()}
    model: Any = SimpleNamespace(network=network, precision=None)
    model.weights = WeightSets(dict(network.named_parameters()), critic=critic)
    hardware.prepare(model)
    for name in (EMA, REFERENCE):
        model.weights.add(name)
    optimizer = torch.optim.AdamW([*model.weights.parameters.values()], lr=0.1, weight_decay=0.0)
    model.head, model.export = head, lambda folder, values: None
    return model, optimizer, hardware


def step(model: Any, optimizer: torch.optim.Optimizer, hardware: Hardware) -> None:
    """Updates that follow from each parameter's values, the same in any number of ranks."""
    for name, parameter in model.weights.parameters.items():
        if name in STILL:
            continue
        parameter.grad = parameter.detach() * 0.5 + 0.1
    optimizer.step()
    model.weights.update(EMA, 0.5)
    optimizer.zero_grad()


def begin(folder: Path, model: Any, optimizer: torch.optim.Optimizer, rank: int) -> Any:
    if rank == 0:
        return begin_checkpoint(folder, model, EMA, {"iterations": 2}, optimizer)
    return begin_part(folder, model, optimizer)


def summary(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """A number for each full tensor, that depends on all of its elements and their places."""
    sharding = model.weights.sharding
    found = model.weights.full_state_dict()
    for name, parameter in model.weights.parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            part = value if sharding is None else sharding.dtensor(name, value)
            full = part.full_tensor() if isinstance(part, DTensor) else part
            found[f"optimizer/{name}/{key}"] = full
    return {key: _number(found[key]) for key in sorted(found)}


def _number(tensor: Tensor) -> float:
    values = tensor.detach().double().flatten()
    return float((values * torch.arange(1, len(values) + 1)).sum())


def peak() -> int:
    """The most memory of this process since `forget_peak`, in bytes."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) * 1024


def forget_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def settled(seconds: float = 3.0) -> int:
    """The memory once torch's threads have let go of the last checkpoint's copies."""
    found, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        gc.collect()
        found.append(forget_peak())
        time.sleep(0.1)
    return min(found)


def _full_disk(*_: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def main() -> dict[str, Any]:
    action, folder = sys.argv[1], Path(sys.argv[2])
    rank = int(os.environ.get("RANK", "0"))
    model, optimizer, hardware = make(seed=0 if action != "load" else 1)
    found: dict[str, Any] = {}
    if action == "load":
        load_checkpoint(folder, model)
        load_optimizer(folder, optimizer, model=model)
        found["numbers"] = summary(model, optimizer)
        step(model, optimizer, hardware)
        found["next"] = summary(model, optimizer)
    else:
        for _ in range(2):
            step(model, optimizer, hardware)
    if action == "save":
        found["numbers"] = summary(model, optimizer)
        finish = begin(folder, model, optimizer, rank)
        step(model, optimizer, hardware)  # training goes on
        finish()
        found["next"] = summary(model, optimizer)
    if action == "fail":
        if rank == 1:
            HuggingFaceStorageWriter.write_data = _full_disk  # type: ignore[method-assign]
        try:
            begin(folder, model, optimizer, rank)()
        except OSError as error:
            found["errno"] = error.errno
    if action == "measure":
        begin(folder.with_name("step_000001"), model, optimizer, rank)()  # what is made but once
        base = settled()
        begin(folder, model, optimizer, rank)()
        found["held"] = peak() - base
        found["shard"] = checkpoint_bytes(model, optimizer) // hardware.world_size
    hardware.any_rank(False)  # rank 0 is done as well
    hardware.close()
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    # in one piece: ranks share the file
    os.write(1, f"{json.dumps(main())}\n".encode())
    exit_at_once(0)  # as a rank of a run does
