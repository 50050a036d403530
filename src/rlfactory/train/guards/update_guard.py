"""Finds what of an update is not finite; then skips the optimizer step, or stops the run."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from rlfactory.algo.base import Loss
from rlfactory.batch import Batch, Outputs, TokenBatch, TokenOutputs
from rlfactory.hardware.base import Hardware
from rlfactory.utils.errors import TrainingError

SHOWN_PROMPTS = 3

log = logging.getLogger(__name__)
LOSS = "the loss"
Masks = dict[str, Tensor]
"""By the name of a tensor, where it is not finite: bool, of the tensor's shape."""


class GuardError(TrainingError):
    """An update was not finite; the message names what of it, and the prompts it came from."""


@dataclass(frozen=True)
class NonFiniteReport:
    """The numbers that were not finite in an update.

    Attributes:
        iteration: counted from 1, as are `update` and `micro_batch`.
        update: the number of the update in its iteration.
        micro_batch: None for a gradient, the sum over all of them.
        rows: by what is not finite, the rows of the affected items; no rows where it belongs to no
            single item.
        prompts: the prompt of each item.
        samples: the number of each item's sample in the rollout.
        facts: the loss and the means of the metrics.
        tensors: what the update was computed from, by name.
    """

    iteration: int
    update: int
    micro_batch: int | None
    rows: Mapping[str, list[int]]
    prompts: list[str]
    samples: list[int]
    facts: Mapping[str, float] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def suspects(self) -> list[str]:
        """The distinct prompts of the affected items, or of all items where none is known."""
        affected = sorted({row for rows in self.rows.values() for row in rows})
        rows = affected or range(len(self.prompts))
        return list(dict.fromkeys(self.prompts[row] for row in rows))


Recorder = Callable[[NonFiniteReport], Path | None]
"""Writes a report to the disk; returns the folder, or None if it could not be written."""


@dataclass
class Guard:
    """Decides about updates that are not finite.

    The learner calls `begin` at each iteration, then for each update `rejects`, and `accepted` if
    the update was made.

    Attributes:
        non_finite: `stop` ends the run, `skip` leaves the update out.
        max_skipped: the most updates that are skipped in a row.
        recorder: writes the first report of a row; None: nothing is written.
        consecutive: the number of updates skipped in a row so far.
        dump: the folder that the recorder wrote for this row.
        skipped: the number of updates skipped in this iteration.
    """

    non_finite: Literal["stop", "skip"] = "stop"
    max_skipped: int = 3
    recorder: Recorder | None = None
    consecutive: int = 0
    dump: Path | None = None
    skipped: int = 0

    def begin(self) -> None:
        """Begin an iteration."""
        self.skipped = 0

    def rejects(self, report: NonFiniteReport | None, hardware: Hardware) -> bool:
        """Whether the update must be left out, on all ranks if any of them has a report; a
        collective.

        Raises:
            GuardError: the run must stop; all ranks raise it.
        """
        first = hardware.first_rank_where(report is not None)
        if first is None:
            return False
        self.consecutive += 1
        message = ""
        if report is not None and first == hardware.rank:
            if self.dump is None and self.recorder is not None:
                self.dump = self.recorder(report)
            message = describe(report, self.dump)
        # the other ranks raise or log the words of the first rank that has a report
        message = hardware.broadcast(message, first)
        if self.non_finite == "stop":
            raise GuardError(
                f"{message} Try a smaller optimizer.lr or precision=fp32, or leave such updates"
                f" out, at most {self.max_skipped} in a row: guard.non_finite=skip"
            )
        if self.consecutive > self.max_skipped:
            raise GuardError(
                f"{message} It is number {self.consecutive} in a row,"
                f" and guard.max_skipped={self.max_skipped}"
                " are left out at most; try a smaller optimizer.lr"
            )
        self.skipped += 1
        log.warning("%s It is left out, number %d in a row", message, self.consecutive)
        return True

    def accepted(self) -> None:
        """Note that an update was made, which ends a row of skipped ones."""
        self.consecutive, self.dump = 0, None

    def metrics(self) -> dict[str, float]:
        """`guard/skipped` of this iteration, if updates may be skipped."""
        return {} if self.non_finite == "stop" else {"guard/skipped": float(self.skipped)}


def describe(report: NonFiniteReport, dump: Path | None) -> str:
    """A report in words, with the folder that it was written to."""
    count, names = len(report.prompts), report.suspects
    parts = [
        f"{name} of {len(rows)} of {count} items" if rows else name
        for name, rows in report.rows.items()
    ]
    where = f"iteration {report.iteration}, update {report.update}"
    if report.micro_batch is not None:
        where += f", micro-batch {report.micro_batch}"
    shown = ", ".join(map(repr, names[:SHOWN_PROMPTS]))
    more = f" and {len(names) - SHOWN_PROMPTS} more" if len(names) > SHOWN_PROMPTS else ""
    evidence = "" if dump is None else f" Evidence: {dump}."
    return (
        f"Not finite: {', '.join(parts)}; {where}; this update was not made."
        f" Prompts: {shown}{more}.{evidence}"
    )


def find_nonfinite(batch: Batch | TokenBatch, loss: Loss, total: Tensor) -> Masks:
    """Masks of all that an update must not be computed from; nothing here waits for the device.

    `total` is the loss with its penalty.
    """
    if isinstance(batch, TokenBatch):
        tokens = batch.tokens
        reached = tokens.mask if batch.states is None else batch.states.mask
        masks = {  # of real tokens alone: the values at padding are not used
            "advantages": nonfinite(batch.advantage) & tokens.mask,
            "returns": nonfinite(batch.returns) & reached,
            "log-probabilities as sampled": nonfinite(tokens.log_prob) & tokens.mask,
            "values": nonfinite(tokens.value) & tokens.mask,
        }
    else:
        masks = {"advantages": nonfinite(batch.advantage)}
        if batch.replayed is not None:
            masks["log-probabilities as sampled"] = nonfinite(batch.replayed.log_prob)
        if batch.old_log_prob is not None:
            # NaN stands for a sample that needs none
            masks["remembered likelihoods"] = batch.old_log_prob.isinf()
    match loss.outputs:
        case Outputs(prediction=prediction, step=step, log_ratio=ratio):
            masks["the network's prediction"] = nonfinite(prediction).flatten(1).any(1)
            if step is not None and step.log_prob is not None:
                masks["log-probabilities"] = nonfinite(step.log_prob)
            if ratio is not None:
                masks["log-ratios"] = nonfinite(ratio)
        case TokenOutputs(log_prob=log_prob, value=value):
            masks["log-probabilities"] = nonfinite(log_prob)
            masks["the critic's values"] = nonfinite(value)
    return {**masks, LOSS: nonfinite(total)}


@dataclass(frozen=True)
class CheckedMicroBatch:
    """The parts that a report needs of a micro-batch, without its graph and its inputs; its number
    in the update is from 0.
    """

    number: int
    masks: Masks
    loss: Tensor
    metrics: Mapping[str, Tensor]


def first_nonfinite(checked: Sequence[CheckedMicroBatch]) -> CheckedMicroBatch | None:
    """The first micro-batch of an update that is not finite; waits for the device once."""
    device = checked[0].masks[LOSS].device if checked else None
    flags = [
        torch.stack([mask.any().to(device) for mask in one.masks.values()]).any() for one in checked
    ]
    found = torch.stack(flags).tolist() if flags else []
    return checked[found.index(True)] if True in found else None


def rows(masks: Masks, batch: Batch | TokenBatch) -> dict[str, list[int]]:
    """The affected items of each mask that is set; none for a mean, which belongs to no item."""
    found: dict[str, list[int]] = {}
    for name, mask in masks.items():
        if mask.any():
            items = _per_item(mask, batch)
            is_mean = not items.ndim or len(items) != len(batch)
            found[name] = [] if is_mean else items.flatten(1).any(1).nonzero().flatten().tolist()
    return found


def _per_item(mask: Tensor, batch: Batch | TokenBatch) -> Tensor:
    """A mask `[tokens]` of the real tokens of all responses as one `[B, G]`, one `[B]` as
    `[B, 1]`; others unchanged.
    """
    if isinstance(batch, TokenBatch) and mask.shape == (int(batch.tokens.mask.sum()),):
        full = torch.zeros_like(batch.tokens.mask)
        full[batch.tokens.mask] = mask.to(full.device)
        return full
    return mask[:, None] if mask.ndim == 1 else mask


def nonfinite(values: Tensor) -> Tensor:
    """Where values are not finite: bool, of their shape."""
    return ~torch.isfinite(values.detach())
