"""Skips an optimizer step, or stops the run, when a loss, gradient or input is not finite."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torch import Tensor

from rlfactory.hardware.base import Hardware
from rlfactory.utils.errors import TrainingError

SHOWN_PROMPTS = 3

log = logging.getLogger(__name__)


class GuardError(TrainingError):
    """An update was not finite; the message names what of it, and the prompts it came from."""


@dataclass(frozen=True)
class NonFiniteReport:
    """What was not finite in an update.

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
        """Whether the update must be left out, on all ranks if any of them has a report.

        Args:
            report: what this rank found, None for nothing.
            hardware: this rank's; the call is a collective.

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
            raise GuardError(f"{message} {_advice(self.max_skipped)}")
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
    parts = [_count(name, rows, report) for name, rows in report.rows.items()]
    where = f"iteration {report.iteration}, update {report.update}"
    if report.micro_batch is not None:
        where += f", micro-batch {report.micro_batch}"
    evidence = "" if dump is None else f" Evidence: {dump}."
    return (
        f"Not finite: {', '.join(parts)}; {where}; this update was not made."
        f" {_prompts(report)}{evidence}"
    )


def _count(name: str, rows: list[int], report: NonFiniteReport) -> str:
    return f"{name} of {len(rows)} of {len(report.prompts)} items" if rows else name


def _prompts(report: NonFiniteReport) -> str:
    names = report.suspects
    shown = ", ".join(map(repr, names[:SHOWN_PROMPTS]))
    more = f" and {len(names) - SHOWN_PROMPTS} more" if len(names) > SHOWN_PROMPTS else ""
    return f"Prompts: {shown}{more}."


def _advice(limit: int) -> str:
    return (
        "Try a smaller optimizer.lr or precision=fp32, or leave such updates out, at most"
        f" {limit} in a row: guard.non_finite=skip"
    )
