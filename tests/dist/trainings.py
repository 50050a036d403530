"""Short trainings in one process and in several, forked off one that has imported what they need.

`python trainings.py` reads JSON objects on its standard input, a line each: a `folder`, and
`attempts`. It does them in turn in the folder, and prints one JSON object for each. An attempt with
a `name` is a training of `words` (a command line) in `processes`; the full weights are saved as
`NAME.safetensors`, and what rank 0 counted is printed. Others are runs of `teams.py`. Not a test.
"""

import json
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import teams  # first: it imports what runs need
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from teams import free_port, of_torchrun

from rlfactory.config.overrides import plan_from_words
from rlfactory.hardware.distributed import Distributed
from rlfactory.hardware.process_environment import ProcessInfo
from rlfactory.train.build import build, build_hardware, training_budget
from rlfactory.train.components import NoProgress
from rlfactory.train.learner import Learner
from rlfactory.train.process.launch import HOST
from rlfactory.train.trainer import Trainer

COLLECTIVES = {
    "all_gather_single": "gather",
    "all_gather_into_tensor": "gather",
    "reduce_scatter_single": "reduce",
    "reduce_scatter_tensor": "reduce",
}
"""Those of FSDP2 under torch's present names and its former ones."""


class Traffic:
    """Counts bytes that are gathered and reduced, while learning and otherwise."""

    def __init__(self) -> None:
        self.phase = "other"
        self.bytes = Counter[str]()
        self.micro_batches = 0
        for name, kind in COLLECTIVES.items():
            if hasattr(dist, name):
                setattr(dist, name, self._counted(kind, getattr(dist, name)))
        accumulate, pad = Learner._accumulate_gradient, Distributed.pad_micro_batches

        def accumulate_gradient(learner: Learner, *arguments: Any) -> Any:
            self.phase = "learn"
            try:
                return accumulate(learner, *arguments)
            finally:
                self.phase = "other"

        def counted_micro_batches(hardware: Distributed, *arguments: Any) -> Any:
            for pair in pad(hardware, *arguments):
                self.micro_batches += 1
                yield pair

        Learner._accumulate_gradient = accumulate_gradient  # type: ignore[method-assign]
        Distributed.pad_micro_batches = counted_micro_batches  # type: ignore[method-assign]

    def _counted(self, kind: str, collective: Any) -> Any:
        def count(*arguments: Any, **options: Any) -> Any:
            tensors = [t for t in [*arguments, *options.values()] if isinstance(t, torch.Tensor)]
            # all-gathers write the full tensor, reduce-scatters read it
            self.bytes[f"{self.phase} {kind}"] += max(t.nbytes for t in tensors)
            return collective(*arguments, **options)

        return count


def _loaded_before_sharding(hardware: Distributed) -> list[float]:
    """Will hold the number of a network's values that each rank has read before it is sharded."""
    loaded, prepare = list[float](), hardware.prepare

    def counted_prepare(model: Any) -> None:
        here = sum(p.numel() for p in model.network.parameters() if not p.is_meta)
        loaded.extend(hardware.all_gather(torch.tensor([here])).tolist())
        prepare(model)

    hardware.prepare = counted_prepare  # type: ignore[method-assign]
    return loaded


def train(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Train, save the weights, and return what was counted."""
    traffic = Traffic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        config = plan_from_words(*asked["words"]).config
        hardware = build_hardware(config)
        loaded = _loaded_before_sharding(hardware)
        components = build(config, hardware=hardware)
        model = components.model
        size = sum(p.numel() for p in model.network.parameters())
        metrics = []
        trainer = Trainer(components, training_budget(config), NoProgress())
        trainer.run(lambda _, measured, __: metrics.append(measured))
    moments = model.weights.sharded_optimizer_state(components.optimizer)
    types = {type(t).__name__ for k, t in moments.items() if not k.endswith("/step")}
    weights = model.weights.full_state_dict()
    if components.hardware.rank == 0:
        save_file({k: v.contiguous() for k, v in weights.items()}, f"{asked['name']}.safetensors")
    components.hardware.close()
    return {
        "parameters": size,
        "loaded": loaded,
        "micro_batches": traffic.micro_batches,
        "bytes": traffic.bytes,
        "moments": sorted(types),
        "warnings": [str(warning.message) for warning in caught],
        "metrics": metrics,
    }


def member(asked: Mapping[str, Any], info: ProcessInfo, result: int) -> int:
    """A forked process; its number."""
    child = os.fork()
    if child:
        return child
    if info.world_size > 1:
        os.environ.update(of_torchrun(info))
    code = 1
    try:
        counted = train(asked)
        if info.rank == 0:
            os.write(result, json.dumps(counted).encode())
        code = 0
    except Exception:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def attempt(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What rank 0 counted, and exit codes of all processes."""
    count, port = asked["processes"], free_port()
    with tempfile.TemporaryFile() as result:
        infos = [ProcessInfo(rank, count, rank, HOST, port) for rank in range(count)]
        members = [member(asked, info, result.fileno()) for info in infos]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in members]
        result.seek(0)
        counted = json.loads(result.read() or b"{}")
    return counted | {"codes": codes}


def main() -> None:
    for line in sys.stdin:
        given = json.loads(line)
        os.chdir(given["folder"])
        for asked in given["attempts"]:
            done = attempt(asked) if "name" in asked else teams.attempt(asked)
            print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
