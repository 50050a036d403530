"""Reports of what is not finite: which prompts it belongs to; and dumps of the tensors."""

import logging
import math
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from rlfactory.batch import Batch, TokenBatch, TrainingItems
from rlfactory.rollout import Rollout
from rlfactory.run.atomic_write import write_json
from rlfactory.train.guards.update_guard import CheckedMicroBatch, NonFiniteReport, nonfinite, rows

MAX_FOLDERS = 3
"""Dumps that a run keeps: the first two, which show how it began, and the newest."""
MAX_BYTES = 2**28
"""Of the tensors of a dump; larger ones are left out, and named."""

log = logging.getLogger(__name__)


def write_dump(place: Path, report: NonFiniteReport) -> Path | None:
    """Write a report as `iteration_000012/{batch.safetensors, about.json}` in a folder, which is
    returned; None if it could not be written, so that this error hides no other.
    """
    folder = place / f"iteration_{report.iteration:06d}"
    unfinished = folder.with_name(f".{folder.name}")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        kept = smallest(report.tensors)
        # copies: safetensors refuses tensors that share memory or are not contiguous
        copies = {k: v.detach().to("cpu", copy=True).contiguous() for k, v in kept.items()}
        save_file(copies, unfinished / "batch.safetensors")
        write_json(unfinished / "about.json", about(report, [*kept]), allow_nan=False)
        # that of the same name goes, or else the last one if there are enough
        dumps = sorted(place.glob("iteration_*"))
        for old in [folder] if folder in dumps else dumps[MAX_FOLDERS - 1 :]:
            shutil.rmtree(old)
        os.replace(unfinished, folder)
    except Exception:
        log.exception("the evidence could not be written")
        return None
    return folder


def about(report: NonFiniteReport, kept: list[str]) -> dict[str, Any]:
    """A report without its tensors, fit for JSON: numbers that are not finite become strings."""
    return {
        "iteration": report.iteration,
        "update": report.update,
        "micro_batch": report.micro_batch,
        "not_finite": {name: list(rows) for name, rows in report.rows.items()},
        "prompts": report.prompts,
        "samples": report.samples,
        "facts": {k: v if math.isfinite(v) else str(v) for k, v in report.facts.items()},
        "left_out": sorted(report.tensors.keys() - set(kept)),
    }


def smallest(tensors: Mapping[str, Tensor], limit: int = MAX_BYTES) -> dict[str, Tensor]:
    """As many tensors as fit into `limit` bytes, the smallest first."""
    kept: dict[str, Tensor] = {}
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].nbytes):
        limit -= tensor.nbytes
        if limit >= 0:
            kept[name] = tensor
    return kept


def named_tensors(value: object, path: str = "") -> dict[str, Tensor]:
    """The tensors in nested dataclasses and mappings, by their path: `replayed/log_prob`."""
    if isinstance(value, Tensor):
        return {path: value}
    items: Mapping[str, object] = {}
    if isinstance(value, Mapping):
        items = value
    elif is_dataclass(value) and not isinstance(value, type):
        items = {f.name: getattr(value, f.name) for f in fields(value)}
    tensors: dict[str, Tensor] = {}
    for name, item in items.items():
        tensors |= named_tensors(item, f"{path}/{name}" if path else str(name))
    return tensors


@dataclass(frozen=True)
class UpdatePosition:
    """The position of an update in a run: its iteration and number, each from 0."""

    iteration: int
    update: int


def report_first(
    found: CheckedMicroBatch,
    micro_batches: Iterable[Batch | TokenBatch],
    samples: Rollout,
    position: UpdatePosition,
) -> NonFiniteReport:
    """The report of the micro-batch that was found not to be finite, one of all `micro_batches` of
    an update.
    """
    remaining, metrics = iter(micro_batches), found.metrics
    first = sum(len(micro_batch) for micro_batch in islice(remaining, found.number))
    micro_batch = next(remaining)
    if isinstance(micro_batch, Batch):
        items: list[int] = micro_batch.sample.tolist()
    else:
        items = [*range(first, first + len(micro_batch))]
    means = {name: float(torch.as_tensor(v).float().mean()) for name, v in metrics.items()}
    return NonFiniteReport(
        iteration=position.iteration + 1,
        update=position.update + 1,
        micro_batch=found.number + 1,
        rows=rows(found.masks | {name: nonfinite(v) for name, v in metrics.items()}, micro_batch),
        prompts=[samples.prompts[row] for row in items],
        samples=samples.index[items].tolist(),
        facts={"loss": float(found.loss), **means},
        tensors=named_tensors({"batch": micro_batch, "metrics": metrics}),
    )


def report_gradient(
    norm: float, batch: TrainingItems | TokenBatch, samples: Rollout, position: UpdatePosition
) -> NonFiniteReport:
    """The report of an update whose losses are finite and whose gradient is not."""
    return NonFiniteReport(
        iteration=position.iteration + 1,
        update=position.update + 1,
        micro_batch=None,
        rows={"the gradient's norm": []},
        prompts=samples.prompts,
        samples=samples.index.tolist(),
        facts={"norm": norm},
        tensors=named_tensors({"batch": batch}),
    )
