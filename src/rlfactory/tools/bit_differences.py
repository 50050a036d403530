"""Where two runs' metrics, evaluations and checkpoints differ in a bit, a line for each difference.

Times and memory are not compared, nor what depends on when a run was saved or stopped.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlfactory.run.checkpoint.checksums import MANIFEST_FILE
from rlfactory.run.checkpoint.find import (
    OPTIMIZER_FILE,
    SHARDS_FOLDER,
    STATE_FILE,
    WEIGHTS_FILE,
    is_sharded,
)
from rlfactory.run.checkpoint.serialization import read_tensors
from rlfactory.run.checkpoint.sharded import whole_tensors
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import Record
from rlfactory.utils.data_files import read_json

CLOCKS = ("time", "memory")
"""How the names of metrics begin that no two runs share."""
STAGES = ("reward", "diversity", "advantage", "ratio", "loss", "grad")
"""How metrics' names begin, in the order in which an iteration computes them: the first metric that
differs says where to look. Names of no stage follow.
"""
OF_AN_ATTEMPT = frozenset(
    {"seconds", "config", "looked", "lines", "best", "logger", "timely", "ended", "advice"}
)
"""Keys of a checkpoint's state that say when a run was saved, stopped or looked at."""
SHOWN = 60
"""Letters of a value of the state that are shown."""


def metrics_differences(
    recorded: Sequence[Record], remade: Sequence[Record], stretch: tuple[int, int], *, is_done: bool
) -> Iterator[str]:
    """The differences of the lines of metrics after iteration `a`, until `b`, of the stretch
    `(a, b)`. If the recorded run `is_done`, its last evaluation must be there.
    """
    former, new = _by_kind(recorded, stretch), _by_kind(remade, stretch)
    for iteration, kind in [of for of, lines in former.items() if len(lines) > 1]:
        yield f"metrics.jsonl has more than one line of {kind} at iteration {iteration}"
    last = max((int(line["iteration"] or 0) for line in recorded), default=0)
    for (iteration, kind), lines in sorted(new.items()):
        found = former.get((iteration, kind))
        was_stopped_before = iteration == stretch[1] == last and kind == "evaluation"
        if found is None and not (was_stopped_before and not is_done):
            yield f"metrics.jsonl lacks the line of {kind} at iteration {iteration}"
        if found is not None:
            yield from _line_differences(found[0], lines[0], f"iteration {iteration}")
    for iteration, kind in sorted(former.keys() - new.keys()):
        if kind == "training":
            yield f"metrics.jsonl has a line of iteration {iteration} that training did not write"


def evaluation_differences(recorded: RunFolder, remade: RunFolder, first: int) -> Iterator[str]:
    """The differences of the evaluations from iteration `first` on that were made again."""
    for name, folder in remade.evaluated_sets().items():
        former = recorded.prompt_set(name)
        for path in sorted(folder.evaluations.glob("[0-9]*.json")):
            known = former.evaluations / path.name
            if not path.stem.isdecimal() or int(path.stem) < first or not known.is_file():
                continue
            if known.read_bytes() != path.read_bytes():
                yield f"{known.relative_to(recorded.path)} has other scores, prompts or samples"


def checkpoint_differences(recorded: Path, remade: Path) -> Iterator[str]:
    """The differences of two checkpoints' weights, optimizer, state, then of all other files.

    Of shards of other numbers of processes, or of shards and whole files, weights and state alone.
    """
    if not equally_sharded(recorded, remade):
        former, new = (
            whole_tensors(c) if is_sharded(c) else read_tensors(c / WEIGHTS_FILE)
            for c in (recorded, remade)
        )
        yield from tensor_differences(former, new, "weights")
        states = [read_json(c / STATE_FILE, dict[str, Any]) for c in (recorded, remade)]
        yield from _state_differences(*(s | {"optimizer": None} for s in states))
        return
    paths = {p.relative_to(d).as_posix(): p for d in (recorded, remade) for p in d.rglob("*")}
    files = {name for name, path in paths.items() if path.is_file() and name != MANIFEST_FILE}
    first = (WEIGHTS_FILE, OPTIMIZER_FILE, STATE_FILE)
    for name in [*(file for file in first if file in files), *sorted(files.difference(first))]:
        one, other = recorded / name, remade / name
        if not (one.is_file() and other.is_file()):
            yield f"{name} is in one of the checkpoints alone"
        elif name == STATE_FILE:
            yield from _state_differences(*(read_json(f, dict[str, Any]) for f in (one, other)))
        elif name.endswith(".safetensors"):
            yield from tensor_differences(read_tensors(one), read_tensors(other), name)
        elif one.read_bytes() != other.read_bytes():
            yield f"{name} has other content"


def equally_sharded(one: Path, other: Path) -> bool:
    """Whether two checkpoints hold files of the same names for the weights."""
    names = [{shard.name for shard in (c / SHARDS_FOLDER).glob("*")} for c in (one, other)]
    return names[0] == names[1]


def _state_differences(recorded: Mapping[str, Any], remade: Mapping[str, Any]) -> Iterator[str]:
    """The differences of counters, of controllers, and of the optimizer's options and counts."""
    for key in sorted((recorded.keys() | remade.keys()) - OF_AN_ATTEMPT):
        # as text: NaN equals itself, and 1 is not 1.0
        texts = [json.dumps(state.get(key), sort_keys=True) for state in (recorded, remade)]
        if texts[0] != texts[1] and key == "optimizer":
            yield f"{STATE_FILE}: the optimizer's options or counts differ"
        elif texts[0] != texts[1]:
            former, new = (t if len(t) <= SHOWN else f"{t[: SHOWN - 3]}..." for t in texts)
            yield f"{STATE_FILE}: {key} is {former}, and {new}"


def tensor_differences(
    recorded: Mapping[str, Tensor], remade: Mapping[str, Tensor], file: str
) -> Iterator[str]:
    """The first tensor that differs in a bit, its largest deviation, and how many others differ."""
    names = sorted(recorded.keys() | remade.keys())
    differing = [name for name in names if not same_bits(recorded.get(name), remade.get(name))]
    if not differing:
        return
    name, *others = differing
    former, new = recorded.get(name), remade.get(name)
    more = f"; {len(others)} more of {len(names)} tensors differ" if others else ""
    if former is None or new is None:
        yield f"{file}: {name} is in one of the checkpoints alone{more}"
    elif former.shape != new.shape or former.dtype != new.dtype:
        kinds = [f"{tensor.dtype} {[*tensor.shape]}" for tensor in (former, new)]
        yield f"{file}: {name} is {kinds[0]}, and {kinds[1]}{more}"
    else:
        deviation = (former.double() - new.double()).abs()
        where = f"{int((deviation != 0).sum())} of {former.numel()} values"
        yield f"{file}: {name} differs in {where}, by {float(deviation.max()):.3g} at most{more}"


def same_bits(one: Tensor | None, other: Tensor | None) -> bool:
    """Whether two tensors have equal types, shapes and bits: NaN equals itself, 0 is not -0."""
    if one is None or other is None or one.dtype != other.dtype or one.shape != other.shape:
        return False
    flat = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return torch.equal(*flat)


def _by_kind(
    lines: Sequence[Record], stretch: tuple[int, int]
) -> dict[tuple[int, str], list[Record]]:
    """The lines after iteration `a`, until `b`, by iteration and kind; `a`'s own are before it,
    unless `a` is the beginning.
    """
    first, last = stretch
    found: dict[tuple[int, str], list[Record]] = {}
    for line in lines:
        iteration = int(line["iteration"] or 0)
        if first < iteration <= last or first == iteration == 0:
            kind = "evaluation" if any(key.startswith("eval/") for key in line) else "training"
            found.setdefault((iteration, kind), []).append(line)
    return found


def _line_differences(recorded: Record, remade: Record, where: str) -> Iterator[str]:
    names = [n for n in recorded.keys() | remade.keys() if not n.startswith(CLOCKS)]
    missing = object()
    differing = [n for n in names if recorded.get(n, missing) != remade.get(n, missing)]
    if differing:
        order = {stage: number for number, stage in enumerate(STAGES)}
        differing.sort(key=lambda name: (order.get(name.split("/")[0], len(order)), name))
        name, *others = differing
        more = f"; {len(others)} more metrics differ" if others else ""
        values = f"{recorded.get(name, 'missing')}, and {remade.get(name, 'missing')} made again"
        yield f"metrics.jsonl, {where}: {name} is {values}{more}"
