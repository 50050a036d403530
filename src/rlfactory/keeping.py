"""When a run is saved, and how: checkpoints while it goes on, and the way back from one."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from rlfactory.model.base import ImageModel
from rlfactory.model.text import TextModel
from rlfactory.run.atomic import flush
from rlfactory.run.best import Best
from rlfactory.run.checkpoint import begin_checkpoint, checkpoint_bytes, checkpoint_of
from rlfactory.run.disk import Patience
from rlfactory.run.divided import gather_checkpoint
from rlfactory.run.folder import RunFolder, enough_space
from rlfactory.run.retention import Retention
from rlfactory.run.writer import Writer


class Keeper:
    """Writes checkpoints of a run, and removes those that are not to stay.

    `saved` is the iteration of the last one; `timely` are those made because it was time. Of
    several processes the one that `leads` writes; the others hand over what is theirs.
    """

    def __init__(
        self,
        folder: RunFolder,
        options: Mapping[str, Any],
        best: Best,
        patience: Patience | None = None,
        *,
        leads: bool = True,
    ) -> None:
        self.folder, self.best, self.leads = folder, best, leads
        self.patience = patience or Patience(folder.path)
        self.every, self.seconds = options["every"], 60 * options["minutes"]
        self.retention = Retention(options["keep"], options["keep_every"])
        self.writer = Writer(background=options["background"])
        self.saved: int | None = None
        self.timely: set[int] = set()
        self._since = time.monotonic()

    def is_time(self, done: int, agreed: Callable[[bool], bool] = bool) -> bool:
        """Whether there is to be a checkpoint after so many iterations; remembers that it was.

        What a clock says is `agreed` upon by all processes.
        """
        waited = time.monotonic() - self._since
        by_number = due(done, self.every) or due(done, self.retention.keep_every)
        if not by_number and not (self.seconds > 0 and agreed(self.seconds <= waited)):
            return False
        self.timely.add(done)
        return True

    def save(
        self,
        done: int,
        state: Mapping[str, Any],
        model: ImageModel | TextModel,
        exported: str,
        optimizer: Optimizer,
        about: Mapping[str, Any],
    ) -> None:
        """A checkpoint of this iteration, unless it has one; and the best one's name beside it."""
        if not self.leads:
            self._hand_over(done, model, optimizer)
            return
        self.writer.wait()  # before there is another copy
        write: Callable[[], None] = _nothing
        if self.saved != done:
            place = checkpoint_of(self.folder.checkpoints, done)
            needed = checkpoint_bytes(model, optimizer)
            over = partial(self.patience.over, what=f"checkpoint {place.name}", needed=needed)
            over(partial(enough_space, self.folder.path, needed))
            over(partial(_flush, self.folder.metrics))
            write = begin_checkpoint(place, model, exported, state, optimizer, about, over)
            self.saved, self._since = done, time.monotonic()
        self.writer.do(partial(self._finish, write, frozenset(self.timely), self.best.step))

    def _hand_over(self, done: int, model: ImageModel | TextModel, optimizer: Optimizer) -> None:
        """What the one that writes asks of all."""
        if self.saved != done:
            gather_checkpoint(model, optimizer)
            self.saved, self._since = done, time.monotonic()

    def _finish(self, write: Callable[[], None], timely: frozenset[int], best: int | None) -> None:
        try:
            write()
        except BaseException:
            self.saved = None  # it may be tried again
            raise
        self.patience.over(self.best.write, "the best checkpoint's name")
        clear = partial(self.retention.clear, self.folder.checkpoints, timely, best)
        self.patience.over(clear, "the removal of old checkpoints")


def due(done: int, every: int) -> bool:
    """Whether it is the turn of something that is done every so often; 0 is never."""
    return every > 0 and done % every == 0


def _flush(path: Path) -> None:
    """What a checkpoint counts on is on the disk before it is."""
    if path.exists():
        flush(path)


def _nothing() -> None:
    """There is a checkpoint already."""
