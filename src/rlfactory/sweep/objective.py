"""The number that a search looks for, from what a run leaves; no library is needed to read it."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlfactory.sweep.table import Column


def objective(run: Path, column: Column) -> float:
    """A column's number of one run; NaN where it has none."""
    kind, _, name = column.measure.partition("/")
    lines = _lines(run / "metrics.jsonl")
    if kind == "iterations":
        return float(max((line.get("iteration") or 0 for line in lines), default=0))
    of: dict[str, tuple[str, Callable[[list[float]], float]]] = {
        "eval": (f"eval/{name}/mean", lambda values: values[-1]),
        "before": (f"eval/{name}/mean", lambda values: values[0]),
        "last": (name, lambda values: _mean(values[-column.window :])),
        "max": (name, max),
    }
    if kind not in of:
        return math.nan
    key, reduce = of[kind]
    values = [line[key] for line in lines if isinstance(line.get(key), int | float)]
    return column.scale * reduce(values) if values else math.nan


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return []
    found = []
    for line in text.split("\n")[:-1]:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [line for line in found if isinstance(line, dict)]
