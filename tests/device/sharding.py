"""FSDP2 on two processes of the CPU: what is gathered while learning, and held at a checkpoint.

python tests/device/sharding.py model=tiny_sd3 algo=nft      # one JSON object for each rank
"""

import json
import os
import socket
import sys
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / name) for name in ("src", "scripts")]

import torch  # noqa: E402
from faulty.accidents import unadorned  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from rlfactory.cli import app  # noqa: E402
from rlfactory.hardware import distributed  # noqa: E402, F401  (imported once, for all ranks)
from rlfactory.train import session  # noqa: E402
from rlfactory.train.checkpointing.savepoint import Savepoint  # noqa: E402
from rlfactory.train.learner import Learner  # noqa: E402
from rlfactory.train.process import worker  # noqa: E402, F401  (imported once, for all ranks)

RANKS = 2
SMALL = (
    *("hardware=fsdp2", f"hardware.processes={RANKS}", "hardware.device=cpu", "iterations=2"),
    *("prompts_per_iteration=2", "group_size=2", "updates_per_iteration=1", "micro_batch=1"),
    *("evaluation.prompts=2", "checkpoint.every=1", "checkpoint.background=false", "run_dir=run"),
)
IMAGES = ("schedule.steps=2", "sample_batch=4", "evaluation.steps=1", "model.size=32")
TEXTS = ("dynamics.length=8",)
GATHERS, REDUCES = {"_allgather_base_", "all_gather_into_tensor"}, {"_reduce_scatter_base_"}


class Traffic(TorchDispatchMode):
    """Numbers that are gathered and scattered, and the bytes of tensors that are alive at most."""

    def __init__(self) -> None:
        super().__init__()
        self.gathered = self.scattered = self.bytes_now = self.bytes_peak = 0
        self._alive: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it comes back with the shards
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in GATHERS:
            outputs = tensors_of(args[0] if name == "_allgather_base_" else result)
            self.gathered += sum(t.numel() for t in outputs)
        elif name in REDUCES:
            self.scattered += sum(t.numel() for t in tensors_of(args[1]))
        given = {t.untyped_storage()._cdata for t in tensors_of((args, kwargs))}
        for tensor in tensors_of(result):
            if tensor.untyped_storage()._cdata not in given:
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive:
            return

        def freed(_: object) -> None:
            self._alive.pop(key, None)
            self.bytes_now -= size

        self._alive[key] = weakref.ref(storage, freed)
        self.bytes_now += size
        self.bytes_peak = max(self.bytes_peak, self.bytes_now)


def tensors_of(nest: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(nest) if isinstance(leaf, Tensor)]


class Record:
    """What one rank found; in networks, whose numbers are those of all trained parameters.

    Attributes:
        counts: micro-batches, their passes, and the networks gathered and scattered in them.
        unsharded: the largest part of the network that was whole in a micro-batch.
        held: bytes of tensors that a checkpoint made at once, by those of a rank's own state.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.unsharded = self.held = self.own = 0.0

    def watch(self, components: Any) -> None:
        """Count what the learner of these components does."""
        network, evaluations = components.model.network, components.model.evaluations
        self.size = sum(p.numel() for p in network.parameters())
        loss, before_pass = components.algo.loss, evaluations.on_pass
        self.learning = False

        def counted(*args: Any) -> Any:
            self.counts["micro_batches"] += 1
            return loss(*args)

        def on_pass() -> None:
            self.counts["passes"] += self.learning
            before_pass()

        def after_block(*_: Any) -> None:
            if self.learning:
                self.unsharded = max(self.unsharded, whole_numbers(network) / self.size)

        components.algo.loss, evaluations.on_pass = counted, on_pass
        for module in network.modules():
            if hasattr(module, "_get_fsdp_state"):
                module.register_forward_hook(after_block)

    @contextmanager
    def micro_batches(self) -> Iterator[None]:
        """Learning from the micro-batches of an update."""
        self.learning = True
        with Traffic() as traffic:
            yield
        self.learning = False
        self.counts["gathered"] += traffic.gathered
        self.counts["scattered"] += traffic.scattered

    @contextmanager
    def checkpoint(self, components: Any) -> Iterator[None]:
        """Writing a checkpoint."""
        weights, optimizer = components.model.weights, components.optimizer
        moments = (value for state in optimizer.state.values() for value in state.values())
        own = [*weights.state_dict().values(), *moments]
        self.own = local_bytes(t for t in own if isinstance(t, Tensor))
        with Traffic() as traffic:
            yield
        self.held = max(self.held, traffic.bytes_peak / self.own)

    def summary(self) -> dict[str, float]:
        """Numbers for each micro-batch; `held` in shards."""
        batches = self.counts["micro_batches"]
        each = {
            "passes": self.counts["passes"] / batches,
            "gathered": self.counts["gathered"] / batches / self.size,
            "scattered": self.counts["scattered"] / batches / self.size,
            "unsharded": self.unsharded,
            "held": self.held,
        }
        return {name: round(value, 2) for name, value in each.items()}


def whole_numbers(network: Any) -> int:
    """The parameters' numbers that this rank has in full at the moment."""
    modules = (m for m in network.modules() if hasattr(m, "_get_fsdp_state"))
    groups = (m._get_fsdp_state()._fsdp_param_group for m in modules)
    parameters = (p for group in groups if group is not None for p in group.fsdp_params)
    outputs = (tensor for p in parameters for tensor in p.all_gather_outputs)
    return sum(t.numel() for t in outputs if t.untyped_storage().size())


def local_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of this rank's rows."""
    local = (t.to_local() if isinstance(t, DTensor) else t for t in tensors)
    return sum(t.numel() * t.element_size() for t in local)


def rank(number: int, port: int, words: Sequence[str], out: Path) -> None:
    """Train as a rank, and write what it found."""
    variables = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": RANKS, "MASTER_PORT": port}
    os.environ.update({k: str(v) for k, v in variables.items()}, MASTER_ADDR="127.0.0.1")
    record = Record()
    build, save, accumulate = session.build, Savepoint.save, Learner._accumulate_gradient

    def watched(*args: Any, **options: Any) -> Any:
        components = build(*args, **options)
        record.watch(components)
        return components

    @wraps(save)
    def saved(savepoint: Savepoint) -> None:
        with record.checkpoint(savepoint.trainer.components):
            save(savepoint)

    @wraps(accumulate)
    def accumulated(*args: Any, **options: Any) -> Any:
        with record.micro_batches():
            return accumulate(*args, **options)

    session.build, Savepoint.save = watched, saved  # type: ignore[method-assign]
    Learner._accumulate_gradient = accumulated  # type: ignore[method-assign]
    unadorned()
    app.exit_at_once = sys.exit  # what was found is written after the command
    sys.argv, code = ["rlfactory", *words], 1
    try:
        app.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    if code == 0:
        out.write_text(json.dumps(record.summary()))
    os._exit(code)


def main(words: Sequence[str]) -> int:
    """Run all ranks in an empty folder, and print what each found; the largest exit code."""
    torch.set_num_threads(1)
    more = TEXTS if any("gpt2" in word for word in words) else IMAGES
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        children = []
        for number in range(RANKS):
            child = os.fork()
            if child == 0:
                os.dup2(2, 1)
                rank(number, port, [*SMALL, *more, *words], Path(folder) / f"{number}.json")
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        for number in range(RANKS):
            if not any(codes):
                print((Path(folder) / f"{number}.json").read_text())
        return max(map(abs, codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
