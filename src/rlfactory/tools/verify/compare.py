"""Bit by bit: the metrics, evaluations and checkpoint of a stretch, as recorded and as made again.

Times and memory are not compared, nor what depends on when a run was saved or stopped.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlfactory.run.checkpoint.checksums import MANIFEST_FILE
from rlfactory.run.checkpoint.find import OPTIMIZER_FILE, STATE_FILE, WEIGHTS_FILE
from rlfactory.run.checkpoint.load import load_state
from rlfactory.run.checkpoint.serialization import read_tensors
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import Record
from rlfactory.utils.data_files import read_json

CLOCKS = ("time", "memory")
"""How the names of metrics begin that no two runs share."""
OF_AN_ATTEMPT = frozenset(
    {"seconds", "config", "looked", "lines", "best", "logger", "timely", "ended", "advice"}
)
"""Keys of a checkpoint's state that say when a run was saved, stopped or looked at."""


def metrics_differences(
    recorded: Sequence[Record], remade: Sequence[Record], stretch: tuple[int, int], *, is_done: bool
) -> Iterator[str]:
    """The differences of the lines of metrics after iteration `a`, until `b`.

    Args:
        recorded: all lines of the run.
        remade: those of the same run made again, until `b`.
        stretch: `(a, b)`.
        is_done: whether the recorded run has ended, so that its last evaluation is there.
    """
    former, new = _by_kind(recorded, stretch), _by_kind(remade, stretch)
    twice = [kind for kind, lines in former.items() if len(lines) > 1]
    for iteration, kind in twice:
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
    for name, folder in {"": remade, **remade.evaluated_sets()}.items():
        former = recorded.prompt_set(name) if name else recorded
        for path in sorted(folder.evaluations.glob("[0-9]*.json")):
            known = former.evaluations / path.name
            if not path.stem.isdecimal() or int(path.stem) < first or not known.is_file():
                continue
            if known.read_bytes() != path.read_bytes():
                yield f"{known.relative_to(recorded.path)} has other scores, prompts or samples"


def checkpoint_differences(recorded: Path, remade: Path) -> Iterator[str]:
    """The differences of two checkpoints' weights, optimizer, state, then of all other files."""
    files = {_relative(path, folder) for folder in (recorded, remade) for path in _files(folder)}
    first = (WEIGHTS_FILE, OPTIMIZER_FILE, STATE_FILE)
    for name in sorted(files, key=lambda file: (file not in first, file != WEIGHTS_FILE, file)):
        former, new = recorded / name, remade / name
        if not (former.is_file() and new.is_file()):
            yield f"{name} is in one of the checkpoints alone"
        elif name == STATE_FILE:
            yield from state_differences(recorded, remade)
        elif name.endswith(".safetensors"):
            yield from tensor_differences(read_tensors(former), read_tensors(new), name)
        elif former.read_bytes() != new.read_bytes():
            yield f"{name} has other content"


def state_differences(recorded: Path, remade: Path) -> Iterator[str]:
    """The differences of the counters, controllers and moments' options of two checkpoints."""
    optimizer = [_optimizer_options(folder) for folder in (recorded, remade)]
    former, new = load_state(recorded), load_state(remade)
    for key in sorted((former.keys() | new.keys()) - OF_AN_ATTEMPT):
        if not _are_equal(former.get(key), new.get(key)):
            yield f"{STATE_FILE}: {key} is {_short(former.get(key))}, and {_short(new.get(key))}"
    if not _are_equal(*optimizer):
        yield f"{STATE_FILE}: the optimizer's options or counts differ"


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
    differing = sorted(n for n in names if recorded.get(n, missing) != remade.get(n, missing))
    if differing:
        name, *others = differing
        more = f"; {len(others)} more metrics differ" if others else ""
        values = f"{recorded.get(name, 'missing')}, and {remade.get(name, 'missing')} made again"
        yield f"metrics.jsonl, {where}: {name} is {values}{more}"


def _optimizer_options(folder: Path) -> Any:
    return read_json(folder / STATE_FILE, dict[str, Any]).get("optimizer")


def _are_equal(one: object, other: object) -> bool:
    """Whether plain values are equal; NaN equals itself, and 1 is not 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST_FILE)


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()
