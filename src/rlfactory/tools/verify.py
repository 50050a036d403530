"""`rlfactory verify`: makes a stretch of a run again, and says whether it has the same bits.

Times and memory are not compared, nor what depends on when a run was saved or stopped.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import yaml
from torch import Tensor

from rlfactory.config.diff import differences, format_diff
from rlfactory.config.frozen import upgrade
from rlfactory.run.atomic_write import write_text
from rlfactory.run.checkpoint.checksums import MANIFEST_FILE, DamagedError, read_manifest
from rlfactory.run.checkpoint.checksums import verify as verify_checksums
from rlfactory.run.checkpoint.find import (
    OPTIMIZER_FILE,
    STATE_FILE,
    WEIGHTS_FILE,
    all_checkpoints,
    checkpoint_of,
)
from rlfactory.run.checkpoint.load import load_state
from rlfactory.run.checkpoint.serialization import read_tensors
from rlfactory.run.environment import NUMERICS, changes, read_environments
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.inputs import remember
from rlfactory.run.metrics import Record, read
from rlfactory.train.operations import VARIABLE, first_difference
from rlfactory.train.process.launch import run_or_launch
from rlfactory.train.process.run_arguments import RunArguments
from rlfactory.utils.console import print_error
from rlfactory.utils.data_files import read_json

Config = Mapping[str, Any]
QUIET = {"logger": {"_target_": "rlfactory.run.loggers.NoLogger"}, "max_minutes": None}
"""What is set for the repetition, so that nothing is sent anywhere."""
ONLY_AT_END = {"every": 0, "minutes": 0, "keep_every": 0, "best": False}
OUTPUT, SHOWN = "output.txt", 60
CLOCKS = ("time", "memory")
"""How the names of metrics begin that no two runs share."""
STAGES = ("reward", "diversity", "advantage", "ratio", "loss", "grad")
"""How metrics' names begin, in the order in which an iteration computes them: the first metric that
differs says where to look.
"""
OF_AN_ATTEMPT = frozenset(
    {"seconds", "config", "looked", "lines", "best", "logger", "timely", "ended", "advice"}
)
"""Keys of a checkpoint's state that say when a run was saved, stopped or looked at."""


@dataclass(frozen=True)
class Stretch:
    """The iterations after `begin`, until `end`.

    Attributes:
        begin: the iteration of the checkpoint to begin from; 0: the beginning of the run.
        end: the last iteration.
        has_end: whether there is a checkpoint of the end, to compare with.
    """

    begin: int
    end: int
    has_end: bool

    @property
    def words(self) -> str:
        """The iterations, counted from 1."""
        return f"iterations {self.begin + 1} to {self.end}"


def verify(
    path: Path,
    config: Config,
    iteration: int | None,
    moved: Mapping[str, str] | None = None,
    layout: Config | None = None,
) -> int:
    """Make a stretch of a run again in a temporary folder, and print how it differs.

    Args:
        path: the run folder, which is only read.
        config: its configuration.
        iteration: the last iteration of the stretch; None: that of the newest checkpoint.
        moved: paths by key, where the run's model and files lie elsewhere now.
        layout: the configuration to make it again with, where it has other batches or processes.

    Returns:
        The exit code: 0 if all bits are equal, 1 if not, or if the stretch can't be made again.
    """
    folder = RunFolder(path)
    elsewhere: list[str] = []
    try:
        stretch = find_stretch(folder, iteration)
        found = [*config_differences(folder, config, stretch)]
        if not found:
            print(f"making {stretch.words} again", flush=True)
            with TemporaryDirectory(prefix="rlfactory_verify_") as place:
                copy = Path(place) / path.name
                again = remake(folder, layout or config, stretch, moved or {}, copy)
                found = [*stretch_differences(folder, again, stretch)]
                elsewhere = [*environment_changes(folder, again, stretch)]
                if found and layout is not None:
                    begin = Stretch(stretch.begin, stretch.begin + 1, has_end=False)
                    sides = [
                        _recorded(
                            folder, its, begin, moved or {}, Path(place) / f"{path.name}_{name}"
                        )
                        for name, its in (("one", config), ("other", layout))
                    ]
                    found.append(_operation(*sides))
    except (RunFolderError, OSError, ValueError) as error:
        print_error(str(error))
        return 1
    return _report(stretch, found, elsewhere)


def _recorded(
    folder: RunFolder, config: Config, stretch: Stretch, moved: Mapping[str, str], place: Path
) -> Path:
    """Make a stretch again, and return `place`, a folder of what the network's modules do."""
    place.mkdir()
    os.environ[VARIABLE] = str(place)
    try:
        remake(folder, config, stretch, moved, place / "run")
    finally:
        del os.environ[VARIABLE]
    return place


def _operation(one: Path, other: Path) -> str:
    if name := first_difference(one, other):
        return f"the first operation that gives other bits for the same row: {name}"
    return (
        "no module of the network gives other bits for the same row before the first update: texts"
        " are padded to other lengths, or gradients are added in another order"
    )


def config_differences(folder: RunFolder, config: Config, stretch: Stretch) -> Iterator[str]:
    """How config.yaml differs from the configuration that the checkpoints were made with."""
    steps = [step for step in (stretch.begin, stretch.end) if step]
    for step in steps if stretch.has_end else steps[:-1]:
        saved = upgrade(load_state(checkpoint_of(folder.checkpoints, step))["config"])
        # an extended run has more iterations than its checkpoints say
        if changed := [c for c in differences(saved, config) if c[0] != "iterations"]:
            yield f"config.yaml is not that of step_{step:06d}: {format_diff(changed)}"


def stretch_differences(folder: RunFolder, again: RunFolder, stretch: Stretch) -> Iterator[str]:
    """How a stretch differs from the one that was made again, a line for each kind of file."""
    if stretch.has_end:
        pair = [checkpoint_of(run.checkpoints, stretch.end) for run in (folder, again)]
        yield from checkpoint_differences(*pair)
    yield from metrics_differences(
        read(folder.metrics),
        read(again.metrics),
        (stretch.begin, stretch.end),
        is_done=folder.read_status() == "done",
    )
    yield from evaluation_differences(folder, again, stretch.begin + 1 if stretch.begin else 0)


def environment_changes(folder: RunFolder, again: RunFolder, stretch: Stretch) -> Iterator[str]:
    """What of that on which bits depend was otherwise when the run was made."""
    then = checkpoint_of(folder.checkpoints, stretch.end if stretch.has_end else stretch.begin)
    now = read_manifest(checkpoint_of(again.checkpoints, stretch.end))
    if then.is_dir():
        yield from changes(then, now[NUMERICS])
    devices = dict.fromkeys(recorded.device for recorded in read_environments(folder.environment))
    if len(devices) > 1:
        yield f"the run has been on {len(devices)} devices: {', '.join(devices)}"


def _report(stretch: Stretch, found: Sequence[str], elsewhere: Sequence[str]) -> int:
    """Print the differences, or that there are none; returns the exit code."""
    if not found:
        compared = "metrics, evaluations, weights, optimizer" if stretch.has_end else "metrics"
        print(f"verified: {stretch.words} give the same bits again ({compared})")
        return 0
    print(f"{stretch.words} are not what the folder holds:")
    for line in found:
        print(f"  {line}")
    for line in elsewhere or ["nothing that is recorded: device, threads, versions, batch layout"]:
        print(f"  other than then: {line}")
    return 1


def find_stretch(folder: RunFolder, iteration: int | None) -> Stretch:
    """The stretch between a run's last two checkpoints; or from the last checkpoint before
    `iteration` until that.

    Raises:
        RunFolderError: there is no checkpoint, the run has not come so far, or a checkpoint is
            damaged.
    """
    steps = sorted(all_checkpoints(folder.checkpoints))
    if not steps:
        raise RunFolderError(f"{folder.path} holds no checkpoint, so there is nothing to verify")
    end = steps[-1] if iteration is None else iteration
    if end > steps[-1]:
        raise RunFolderError(f"--iteration {end}: the last checkpoint is of iteration {steps[-1]}")
    begin = max((step for step in steps if step < end), default=0)
    for step in {begin, end} & {*steps}:
        try:
            verify_checksums(checkpoint_of(folder.checkpoints, step))
        except DamagedError as error:
            raise RunFolderError(f"checkpoint step_{step:06d} is damaged: {error}") from error
    return Stretch(begin, end, end in steps)


def remake(
    folder: RunFolder, config: Config, stretch: Stretch, moved: Mapping[str, str], place: Path
) -> RunFolder:
    """Train the iterations of a stretch again, in the folder `place`, and return it as a run's.

    What training prints goes to its file `output.txt`.

    Args:
        folder: the run, of which nothing is changed.
        config: its configuration.
        stretch: the iterations.
        moved: paths by key, where the run's model and files lie elsewhere now.
        place: a folder that does not exist.

    Raises:
        RunFolderError: training ended with an error, which it has printed.
    """
    copy = RunFolder(place)
    _copy(folder, copy, stretch)
    quiet = {**config, **QUIET, "checkpoint": {**config["checkpoint"], **ONLY_AT_END}}
    write_text(copy.config, yaml.safe_dump(quiet, sort_keys=False, allow_unicode=True))
    remember(copy, moved)
    # forced, since the checkpoint has another logger; the command has compared the configurations
    arguments = RunArguments(place, until=stretch.end, force=True)
    with (place / OUTPUT).open("w", encoding="utf-8") as output, redirect_stdout(output):
        code = run_or_launch(arguments, quiet)
    if code != 0:
        raise RunFolderError(f"the stretch can't be made again: training ended with code {code}")
    return copy


def _copy(folder: RunFolder, copy: RunFolder, stretch: Stretch) -> None:
    """Copy what a run needs that resumes at the stretch's begin; later files it removes itself."""
    copy.path.mkdir(parents=True)
    for part in copy.parts:
        part.mkdir()
    copy.set_status("interrupted")
    for own in (folder.inputs, *([folder.evaluations, folder.samples] if stretch.begin else [])):
        if own.is_dir():
            shutil.copytree(own, copy.path / own.name, dirs_exist_ok=True)
    if stretch.begin:
        checkpoint = checkpoint_of(folder.checkpoints, stretch.begin)
        shutil.copytree(checkpoint, copy.checkpoints / checkpoint.name)
        shutil.copyfile(folder.metrics, copy.metrics)
        if folder.prompt_sets.is_dir():
            shutil.copytree(folder.prompt_sets, copy.prompt_sets)


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
    for name, folder in remade.evaluated_sets().items():
        former = recorded.prompt_set(name)
        for path in sorted(folder.evaluations.glob("[0-9]*.json")):
            known = former.evaluations / path.name
            if not path.stem.isdecimal() or int(path.stem) < first or not known.is_file():
                continue
            if known.read_bytes() != path.read_bytes():
                yield f"{known.relative_to(recorded.path)} has other scores, prompts or samples"


def checkpoint_differences(recorded: Path, remade: Path) -> Iterator[str]:
    """The differences of two checkpoints' weights, optimizer, state, then of all other files."""
    paths = {p.relative_to(d).as_posix(): p for d in (recorded, remade) for p in d.rglob("*")}
    files = {name for name, path in paths.items() if path.is_file() and name != MANIFEST_FILE}
    first = (WEIGHTS_FILE, OPTIMIZER_FILE, STATE_FILE)
    for name in [*(file for file in first if file in files), *sorted(files.difference(first))]:
        former, new = recorded / name, remade / name
        if not (former.is_file() and new.is_file()):
            yield f"{name} is in one of the checkpoints alone"
        elif name == STATE_FILE:
            yield from _state_differences(*(read_json(f, dict[str, Any]) for f in (former, new)))
        elif name.endswith(".safetensors"):
            yield from tensor_differences(read_tensors(former), read_tensors(new), name)
        elif former.read_bytes() != new.read_bytes():
            yield f"{name} has other content"


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
        differing.sort(key=lambda name: (_stage(name), name))
        name, *others = differing
        more = f"; {len(others)} more metrics differ" if others else ""
        values = f"{recorded.get(name, 'missing')}, and {remade.get(name, 'missing')} made again"
        yield f"metrics.jsonl, {where}: {name} is {values}{more}"


def _stage(name: str) -> int:
    """The number of a metric's stage; names of no stage follow."""
    beginning = name.partition("/")[0]
    return STAGES.index(beginning) if beginning in STAGES else len(STAGES)
