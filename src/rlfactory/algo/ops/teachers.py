"""Teachers of on-policy distillation: which one teaches a sample, and micro-batches of one each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rlfactory.algo.base import Algorithm, BatchT, ItemsT, ModelT
from rlfactory.batch import Batch, TokenBatch, TrainingItems
from rlfactory.rollout import Rollout
from rlfactory.utils.errors import TrainingError
from rlfactory.utils.pytree import index_rows, to_device, widened
from rlfactory.utils.types import Faults


class Taught(Algorithm[ModelT, ItemsT, BatchT]):
    """An algorithm whose loss compares with frozen teachers; scores are only reported.

    Args:
        teachers: Paths of frozen teachers: models, or adapters of `model.path`. Each is a network
            in memory beside the model.
        column: The column of the prompts' data with the number of each one's teacher, from 0;
            null: groups of an iteration take turns.
    """

    def __init__(self, *, teachers: list[str] | None = None, column: str | None = None) -> None:
        self.paths, self.column = list(teachers or []), column
        self.teachers: list[Any] = []

    @staticmethod
    def networks(options: Mapping[str, Any]) -> int:
        """Frozen networks beside the model."""
        return len(options["teachers"] or [])

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """There are teachers, of the model's family or vocabulary."""
        from rlfactory.model.pipelines.teacher_files import teacher_faults

        yield from teacher_faults(options["teachers"], run["model"]["path"])

    def prepare(self, model: ModelT) -> None:
        """Load the teachers."""
        student: Any = model
        self.teachers = [student.frozen(path) for path in self.paths]

    def reward_names(self, main: str) -> list[str]:
        """None: scores are only reported."""
        return []

    def teacher_of(self, batch: Any) -> Any:
        """The teacher of a micro-batch."""
        return self.teachers[batch.teacher]

    def numbers(self, rollout: Rollout) -> Tensor:
        """The number of each sample's teacher, `[B]` on the CPU.

        Raises:
            TrainingError: A row's column holds no number of a teacher.
        """
        count = len(self.paths)
        if self.column is None:
            return rollout.groups.cpu() % count
        named: list[Any] = [row.get(self.column) for row in rollout.metadata]
        if wrong := [value for value in named if value not in range(count)]:
            raise TrainingError(
                f"the prompts' column {self.column!r} (algo.column) holds {wrong[0]!r}; allowed are"
                f" the numbers of algo.teachers, 0 to {count - 1}"
            )
        return torch.tensor(named, dtype=torch.int64)


@dataclass(frozen=True)
class TaughtBatch(Batch):
    """A micro-batch of samples with one teacher, the number `teacher`."""

    teacher: int = field(kw_only=True)


@dataclass(frozen=True)
class TaughtItems(TrainingItems):
    """Items of samples whose teachers are the numbers `teachers` `[B]`, on the CPU."""

    teachers: Tensor | None = None

    def starts(self, size: int) -> range:
        """The numbers of the micro-batches, whose sizes differ."""
        return range(len([*_parts(self.teachers, self.t.shape[0], size, self.t.shape[1])]))

    def split(self, size: int, starts: range | None = None) -> Iterator[Batch]:
        """Yield micro-batches of at most `size` items that have one teacher."""
        samples, count = self.t.shape
        parts = _parts(self.teachers, samples, size, count)
        for number, (teacher, numbers) in enumerate(parts):
            if starts is not None and number not in starts:
                continue
            part = replace(self, selected=to_device(numbers, self.t.device))
            (batch,) = TrainingItems.split(part, size, range(0, len(numbers), len(numbers)))
            yield widened(TaughtBatch, batch, teacher=teacher)


@dataclass(frozen=True)
class TaughtTokens(TokenBatch):
    """Responses with the teachers `teachers` `[N]`, on the CPU, or with the one `teacher`."""

    teachers: Tensor | None = None
    teacher: int = 0

    def starts(self, size: int) -> range:
        """The numbers of the micro-batches, whose sizes differ."""
        return range(len([*_parts(self.teachers, len(self), self._most(size))]))

    def split(self, size: int, starts: range | None = None) -> Iterator[TokenBatch]:
        """Yield micro-batches of at most `size` responses that have one teacher."""
        parts = _parts(self.teachers, len(self), self._most(size))
        for number, (teacher, rows) in enumerate(parts):
            if starts is not None and number not in starts:
                continue
            part: TaughtTokens = index_rows(replace(self, max_rows=None, teachers=None), rows)
            part = replace(part, teacher=teacher)
            yield from TokenBatch.split(part, size, range(0, len(rows), len(rows)))

    def _most(self, size: int) -> int:
        """The most responses of a micro-batch."""
        return size if self.max_rows is None else min(size, self.max_rows)


def _parts(
    teachers: Tensor | None, samples: int, size: int, count: int = 1
) -> Iterator[tuple[int, Tensor]]:
    """A teacher's number, 0 where none are named, and at most `size` numbers of items that it
    teaches, of `samples` samples with `count` items each.
    """
    named = torch.zeros(samples, dtype=torch.int64) if teachers is None else teachers
    items = torch.arange(samples * count).view(samples, count)
    for teacher in sorted({*named.tolist()}):
        for numbers in torch.split(items[named == teacher].flatten(), size):
            yield teacher, numbers
