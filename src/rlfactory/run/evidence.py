"""What an update that was not made would have come from, kept for whoever looks into it."""

import json
import logging
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from rlfactory.run.guards import Finding

FOLDERS = 3
"""So many of a run; the first tell most, and the last of them is that of the newest finding."""
BYTES = 2**28
"""Of tensors in one; those of a large model's batch that go beyond it are left out by name."""

log = logging.getLogger(__name__)


class Evidence:
    """Writes `iteration_000012/{batch.safetensors, about.json}` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, found: Finding) -> Path | None:
        """Where a finding is now; None if it could not be written, which hides no other error."""
        try:
            return self._write(found)
        except Exception:
            log.exception("the evidence could not be written")
            return None

    def _write(self, found: Finding) -> Path:
        place = self.folder / f"iteration_{found.iteration:06d}"
        unfinished = place.with_name(f".{place.name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        kept = small(found.tensors)
        copies = {k: v.detach().to("cpu", copy=True).contiguous() for k, v in kept.items()}
        save_file(copies, unfinished / "batch.safetensors")
        text = json.dumps(about(found, [*kept]), indent=1, allow_nan=False, ensure_ascii=False)
        (unfinished / "about.json").write_text(text + "\n", encoding="utf-8")
        self._make_room(place)
        os.replace(unfinished, place)
        return place

    def _make_room(self, place: Path) -> None:
        """Remove what has the same name, or else the last where there are enough."""
        there = sorted(self.folder.glob("iteration_*"))
        for folder in [place] if place in there else there[FOLDERS - 1 :]:
            shutil.rmtree(folder)


def about(found: Finding, kept: list[str]) -> dict[str, Any]:
    """A finding but for its tensors, fit for JSON: a number that is not finite is a word there."""
    return {
        "iteration": found.iteration,
        "update": found.update,
        "micro_batch": found.micro_batch,
        "not_finite": {name: list(rows) for name, rows in found.rows.items()},
        "prompts": found.prompts,
        "samples": found.samples,
        "facts": {k: v if math.isfinite(v) else str(v) for k, v in found.facts.items()},
        "left_out": sorted(found.tensors.keys() - set(kept)),
    }


def small(tensors: Mapping[str, Tensor], limit: int = BYTES) -> dict[str, Tensor]:
    """As many tensors as there is room for, the smallest first."""
    kept: dict[str, Tensor] = {}
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].nbytes):
        limit -= tensor.nbytes
        if limit >= 0:
            kept[name] = tensor
    return kept


def named_tensors(value: object, path: str = "") -> dict[str, Tensor]:
    """The tensors in a nest of dataclasses and mappings, by their path: `taken/log_prob`."""
    if isinstance(value, Tensor):
        return {path: value}
    inside: Mapping[str, object] = {}
    if isinstance(value, Mapping):
        inside = value
    elif is_dataclass(value) and not isinstance(value, type):
        inside = {f.name: getattr(value, f.name) for f in fields(value)}
    found: dict[str, Tensor] = {}
    for name, item in inside.items():
        found |= named_tensors(item, f"{path}/{name}" if path else str(name))
    return found
