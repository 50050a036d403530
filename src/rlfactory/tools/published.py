"""`rlfactory verify RUN --published`: whether a run has the bits of one that the README reports.

published.json has, of each such run, the words that make it and SHA-256 sums of its lines of
metrics and of its weights at the end. `hardware.portable` makes them those of any processor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlfactory.config.frozen import Difference, differences, format_diff
from rlfactory.config.overrides import plan_from_words
from rlfactory.run.checkpoint.checksums import checksum, digest, read_manifest, versions
from rlfactory.run.checkpoint.find import WEIGHTS_FILE, all_checkpoints
from rlfactory.run.environment import differing
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import Record, read
from rlfactory.tools.bit_differences import CLOCKS
from rlfactory.utils.console import print_error
from rlfactory.utils.data_files import read_json

Config = Mapping[str, Any]
FILE = Path(__file__).with_name("published.json")
WITHOUT_EFFECT = ("checkpoint", "logger", "max_minutes", "guard")
"""Groups of keys, or keys, in which a run may differ from the published one."""


@dataclass(frozen=True)
class Published:
    """A published run.

    Attributes:
        words: the command that makes it, after `rlfactory`.
        versions: of the libraries that computed it.
        lines: SHA-256 sums of the lines of metrics, of those before training and after, in order.
        weights: that of the weights after the last iteration; None where the run has not ended.
        scores: the evaluations before and after, as the README reports them.
    """

    words: list[str]
    versions: dict[str, str | None]
    lines: list[str]
    weights: str | None
    scores: list[dict[str, float | None]]


def published() -> list[Published]:
    """The stored runs."""
    return [Published(**row) for row in read_json(FILE, list[dict[str, Any]])]


def recorded(path: Path, words: Sequence[str]) -> dict[str, Any]:
    """The record of the run in the folder `path`, which `words` made."""
    folder = RunFolder(path)
    lines = read(folder.metrics)
    scores = [{k: v for k, v in line.items() if k.startswith("eval/")} for line in lines]
    run = Published(
        words=[*words],
        versions=read_manifest(_newest(folder))["versions"],
        lines=[*map(_line_digest, lines)],
        weights=_weights_digest(folder),
        scores=[line for line in scores if line],
    )
    return asdict(run)


def compare_published(path: Path, config: Config) -> int:
    """Compare a run, which need not have ended, with the published one of its configuration, and
    print how it differs; returns 0 if all that both have is equal, 1 if not, or without such a run.
    """
    folder, pairs = RunFolder(path), list[tuple[Published, list[Difference]]]()
    for run in published():
        found = differences(plan_from_words(*run.words).config, config)
        pairs.append((run, [row for row in found if row[0].split(".")[0] not in WITHOUT_EFFECT]))
    run, others = min(pairs, key=lambda pair: len(pair[1]))
    if others:
        print_error(
            f"{path} is none of the published runs; the nearest is `rlfactory"
            f" {' '.join(run.words)}`, and has {format_diff(others)}"
        )
        return 1
    lines = [*map(_line_digest, read(folder.metrics))]
    count = min(len(lines), len(run.lines))
    changed = [i for i in range(count) if lines[i] != run.lines[i]]
    weights = _weights_digest(folder)
    has_weights = weights is not None and run.weights is not None
    if not count:
        print_error(f"{path} has no line of metrics yet")
        return 1
    if not changed and (not has_weights or weights == run.weights):
        ends = " and the weights" if has_weights else f", of {len(run.lines)} that are stored,"
        print(f"verified: {count} lines of metrics{ends} have the published bits")
        return 0
    first = f"line {changed[0] + 1} of {folder.metrics.name}" if changed else WEIGHTS_FILE
    print(f"{path} differs from the published run, first in {first}")
    for change in differing(run.versions, versions()):
        print(f"  other than then: {change}")
    return 1


def _line_digest(line: Record) -> str:
    """A sum of what a line says, without times and memory; floats as JSON has them, exactly."""
    return digest({k: v for k, v in line.items() if not k.startswith(CLOCKS)})[:16]


def _weights_digest(folder: RunFolder) -> str | None:
    """The sum of the weights after the run's last iteration; None if it has not ended."""
    if folder.read_status() != "done":
        return None
    return checksum(_newest(folder) / WEIGHTS_FILE)


def _newest(folder: RunFolder) -> Path:
    return max(all_checkpoints(folder.checkpoints).items())[1]
