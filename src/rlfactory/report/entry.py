"""A finished run of a leaderboard, as a report and its JSON hold it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rlfactory.run.atomic_write import write_text
from rlfactory.utils.data_files import read_json

ENTRIES_FILE = "leaderboard.json"


@dataclass(frozen=True)
class Entry:
    """A run of a method on a task.

    Attributes:
        before, after: the task's score of the untrained and of the trained model.
        gain: (after - before) / (target - before).
        nfe, reward: the forward passes made and the mean training reward, after each iteration.
    """

    method: str
    task: str
    seed: int
    before: float
    after: float
    gain: float
    nfe: list[float]
    reward: list[float]


def write_entries(entries: Sequence[Entry], path: Path) -> Path:
    """Write entries as JSON, one a line."""
    lines = ",\n".join(json.dumps(asdict(entry), ensure_ascii=False) for entry in entries)
    write_text(path, f"[\n{lines}\n]\n")
    return path


def read_entries(path: Path) -> list[Entry]:
    """Read what `write_entries` wrote."""
    rows = read_json(path, list[Entry], remedy="write it again with rlfactory report")
    return [Entry(**row) for row in rows]
