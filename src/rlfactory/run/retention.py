"""Which checkpoints stay."""

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from rlfactory.fault import fault
from rlfactory.run.checkpoint import found_in


@dataclass(frozen=True)
class Retention:
    """The newest stays, the best, every `keep_every`-th iteration's, and of those that were made
    because it was time the last `keep` (None: all).
    """

    keep: int | None
    keep_every: int

    def staying(
        self, steps: Collection[int], timely: Collection[int], best: int | None
    ) -> set[int]:
        """Of the iterations that have a checkpoint, those that keep it."""
        regular = sorted({*steps} & {*timely})
        last = regular if self.keep is None else regular[-self.keep :]
        marked = [s for s in steps if self.keep_every and s % self.keep_every == 0]
        others = {best, max(steps, default=None)}
        return {*last, *marked} | {step for step in steps if step in others}

    def clear(self, checkpoints: Path, timely: Collection[int], best: int | None) -> None:
        """Remove the others; those that are put aside as damaged stay."""
        found = found_in(checkpoints)
        staying = self.staying(found.keys(), timely, best)
        for step in found.keys() - staying:
            remove(found[step])


def remove(folder: Path) -> None:
    """Remove a checkpoint; what is left if that is interrupted is no checkpoint by its name."""
    doomed = folder.with_name(f".{folder.name}.removed")
    folder.rename(doomed)
    fault("removing")
    shutil.rmtree(doomed)
