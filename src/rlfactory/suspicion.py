"""From tensors that are not finite to a finding: which prompts they belong to, and what to keep."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rlfactory.algo.base import Loss
from rlfactory.batch import Batch, Items, TokenBatch
from rlfactory.rollout import Rollout
from rlfactory.run.evidence import named_tensors
from rlfactory.run.finite import Faults, details, rows
from rlfactory.run.guards import Finding


@dataclass(frozen=True)
class Place:
    """Where in a run: an iteration, the update in it and the micro-batch in that, all from 0;
    `offset` items of the update came before it.
    """

    iteration: int
    update: int
    micro_batch: int = 0
    offset: int = 0


def of_micro_batch(
    wrong: Faults,
    chunk: Batch | TokenBatch,
    loss: Loss,
    metrics: Mapping[str, Tensor],
    samples: Rollout,
    place: Place,
) -> Finding:
    """What is wrong with a micro-batch of an update's `samples`."""
    items = _samples_of(chunk, place.offset)
    kept = {
        "batch": chunk,
        "metrics": metrics,
        "outputs": {"prediction": getattr(loss.outputs, "prediction", None)},
    }
    return Finding(
        iteration=place.iteration + 1,
        update=place.update + 1,
        micro_batch=place.micro_batch + 1,
        rows=rows(wrong | details(loss, metrics), chunk),
        prompts=[samples.prompts[row] for row in items],
        samples=samples.index[items].tolist(),
        facts={"loss": float(loss.value.detach()), **_means(metrics)},
        tensors=named_tensors(kept),
    )


def of_gradient(norm: float, batch: Items | TokenBatch, samples: Rollout, place: Place) -> Finding:
    """An update whose losses are finite and whose gradient is not."""
    return Finding(
        iteration=place.iteration + 1,
        update=place.update + 1,
        micro_batch=None,
        rows={"the gradient's norm": []},
        prompts=samples.prompts,
        samples=samples.index.tolist(),
        facts={"norm": norm},
        tensors=named_tensors({"batch": batch}),
    )


def _samples_of(chunk: Batch | TokenBatch, offset: int) -> list[int]:
    """The row of each item's sample in the update's."""
    if isinstance(chunk, Batch):
        rows_of: list[int] = chunk.sample.tolist()
        return rows_of
    return [*range(offset, offset + len(chunk))]


def _means(metrics: Mapping[str, Tensor]) -> dict[str, float]:
    return {name: float(torch.as_tensor(v).float().mean()) for name, v in metrics.items()}
