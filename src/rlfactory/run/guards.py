"""No optimiser step from what is not finite: such an update is left out, or the run stops."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torch import Tensor

from rlfactory.hardware.base import Hardware
from rlfactory.scoring import TrainingError

SHOWN_PROMPTS = 3

log = logging.getLogger(__name__)


class GuardError(TrainingError):
    """An update that must not be made; the message names what is not finite, and where."""


@dataclass(frozen=True)
class Finding:
    """What was not finite in an update; everything is counted from 1 but rows and `samples`.

    `rows` are the items of a micro-batch by what is wrong with them, none where it is no item's;
    `prompts` and `samples`, numbers in the rollout, are those of all items. `micro_batch` is None
    of a gradient, the sum over all.
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
        """The prompts of the items that are not finite, of all where none is known, each once."""
        broken = sorted({row for rows in self.rows.values() for row in rows})
        return list(dict.fromkeys(self.prompts[row] for row in broken or range(len(self.prompts))))


Witness = Callable[[Finding], Path | None]
"""Keeps a finding for whoever looks into it, and says where; None where it is kept nowhere."""


def nobody(found: Finding) -> None:
    """Keep nothing."""
    del found


@dataclass
class Guard:
    """What to do about updates that are not finite; `row` of them were left out one after another,
    and `place` is where the first of them is told of.
    """

    non_finite: Literal["stop", "skip"] = "stop"
    max_skipped: int = 3
    witness: Witness = nobody
    row: int = 0
    place: Path | None = None
    skipped: int = 0

    def begin(self) -> None:
        """An iteration begins, of which `skipped` counts what is left out."""
        self.skipped = 0

    def refuses(self, found: Finding | None, hardware: Hardware) -> bool:
        """Whether this update is not to be made, which all processes agree on; GuardError where the
        run is to stop.
        """
        first = hardware.first(found is not None)
        if first is None:
            return False
        self.row += 1
        said = ""
        if found is not None and first == hardware.rank:
            if self.place is None:
                self.place = self.witness(found)
            said = told(found, self.place)
        said = hardware.tell(said, first)
        if self.non_finite == "stop":
            raise GuardError(f"{said} {_remedy(self.max_skipped)}")
        if self.row > self.max_skipped:
            raise GuardError(
                f"{said} It is number {self.row} in a row, and guard.max_skipped={self.max_skipped}"
                " are left out at most; try a smaller optimizer.lr"
            )
        self.skipped += 1
        log.warning("%s It is left out, number %d in a row", said, self.row)
        return True

    def made(self) -> None:
        """An update was made: those that were left out before it are in the past."""
        self.row, self.place = 0, None

    def metrics(self) -> dict[str, float]:
        """How many updates of this iteration were left out, where that is allowed."""
        return {} if self.non_finite == "stop" else {"guard/skipped": float(self.skipped)}


def told(found: Finding, place: Path | None) -> str:
    """A finding in words."""
    named = ", ".join(_counted(name, rows, found) for name, rows in found.rows.items())
    where = f"iteration {found.iteration}, update {found.update}"
    if found.micro_batch is not None:
        where += f", micro-batch {found.micro_batch}"
    lies = "" if place is None else f" Evidence: {place}."
    return f"Not finite: {named}; {where}; this update was not made. {_prompts(found)}{lies}"


def _counted(name: str, rows: list[int], found: Finding) -> str:
    return f"{name} of {len(rows)} of {len(found.prompts)} items" if rows else name


def _prompts(found: Finding) -> str:
    names = found.suspects
    shown = ", ".join(map(repr, names[:SHOWN_PROMPTS]))
    more = f" and {len(names) - SHOWN_PROMPTS} more" if len(names) > SHOWN_PROMPTS else ""
    return f"Prompts: {shown}{more}."


def _remedy(limit: int) -> str:
    return (
        "Try a smaller optimizer.lr or precision=fp32, or leave such updates out, at most"
        f" {limit} in a row: guard.non_finite=skip"
    )
