"""What a run leaves behind, so that two runs can be compared to the last bit."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlfactory.run.checkpoint.checksums import MANIFEST_FILE, DamagedError, verify
from rlfactory.run.checkpoint.find import STATE_FILE, all_checkpoints
from rlfactory.run.folder import RunFolder

Traces = dict[str, object]
CLOCKS = ("time", "memory/")
PRESENT = (
    *("config.yaml", "command.txt", "log.txt", "plan.txt", "summary.md", "index.html"),
    "curves.png",
)
"""Files that tell the time, or their own folder's name: that they are there is all to compare."""


def traces(path: Path) -> Traces:
    """Every file, by what is to be the same in it; and whether its checkpoints are sound. What is
    kept as damaged may be anything.
    """
    found: Traces = {}
    for file in sorted(p for p in path.rglob("*") if not p.is_dir()):
        name = file.relative_to(path).as_posix()
        if file.name != MANIFEST_FILE and "/damaged_step_" not in name:
            found[name] = "is there" if name in PRESENT else _reader(file)(file)
    for step, folder in all_checkpoints(RunFolder(path).checkpoints).items():
        found[f"checkpoint {step}"] = _soundness(folder)
    return found


def compared(expected: Traces, found: Traces) -> list[str]:
    """Each file that differs, in words."""
    return [*_compared(expected, found)]


def _compared(expected: Traces, found: Traces) -> Iterator[str]:
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            yield f"{name} is missing"
        elif name not in expected:
            yield f"{name} is left over"
        elif expected[name] != found[name]:
            yield f"{name} differs{_where(expected[name], found[name])}"


def _where(expected: object, found: object) -> str:
    """The first keys that differ, where there are keys."""
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return f": {len(found)} lines instead of {len(expected)}"
        pairs = enumerate(zip(expected, found, strict=True), start=1)
        number, pair = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
        return f" in line {number}{_where(*pair)}"
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = [k for k in expected.keys() | found.keys() if expected.get(k) != found.get(k)]
        return f" in {', '.join(sorted(keys)[:3])}"
    return ""


def _reader(file: Path) -> Callable[[Path], object]:
    special = {"metrics.jsonl": _lines, STATE_FILE: _state, "STATUS": _word}
    return special.get(file.name, _tensors if file.suffix == ".safetensors" else _hash)


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith(CLOCKS)} for line in lines]


def _state(path: Path) -> dict[str, Any]:
    state = json.loads(path.read_text())
    del state["seconds"], state["config"]["run_dir"]
    return dict(state)


def _tensors(path: Path) -> dict[str, Any]:
    """All of a file of tensors but the order of its header's keys: safetensors draws that of the
    metadata anew each time.
    """
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    return {"header": json.loads(data[8:end]), "bytes": hashlib.sha256(data[end:]).hexdigest()}


def _word(path: Path) -> str:
    return path.read_text().strip()


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _soundness(folder: Path) -> str:
    try:
        verify(folder)
    except DamagedError as error:
        return f"is damaged: {error}"
    return "is sound"
