"""Prompts from a fixed list."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.prompts.base import Prompt, PromptError, Prompts, item_indices, spread_indices
from rlfactory.prompts.ops.data_rows import Placed
from rlfactory.prompts.ops.held_out import held_out_texts, sameness
from rlfactory.prompts.ops.pictured import pictured
from rlfactory.prompts.ops.row_forms import EmptyCellError, is_left_out, read_row, same_form
from rlfactory.utils.data_files import load_yaml

log = logging.getLogger(__name__)
TEXTS = Path(__file__).parents[1] / "texts"
"""The folder of the texts that ship, a file for each source."""


def shipped_texts(source: str) -> dict[str, tuple[str, ...]]:
    """The texts that a source is made of, by kind, in the order of its file."""
    content = load_yaml((TEXTS / f"{source}.yaml").read_text(encoding="utf-8"))
    return {kind: tuple(texts) for kind, texts in content.items()}


class LazyPrompts(Sequence[Prompt]):
    """Prompts of which only the texts are in memory; `read` reads that of a row."""

    def __init__(
        self, texts: Sequence[str], rows: Sequence[int], read: Callable[[int], Prompt]
    ) -> None:
        self.texts, self.rows, self.read = texts, rows, read

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.read(self.rows[index])

    def at(self, kept: Sequence[int]) -> "LazyPrompts":
        """Some of the prompts."""
        return LazyPrompts([self.texts[i] for i in kept], [self.rows[i] for i in kept], self.read)


def texts_of(prompts: Iterable[Prompt]) -> Sequence[str]:
    """The text of each prompt."""
    return prompts.texts if isinstance(prompts, LazyPrompts) else [p.text for p in prompts]


def joined(prompts: Iterable[Prompt], others: Sequence[Prompt]) -> Sequence[Prompt]:
    """Prompts and others after them; what is not in memory stays there."""
    if not isinstance(prompts, LazyPrompts):
        return [*prompts, *others]
    count, texts = len(prompts), [*prompts.texts, *texts_of(others)]

    def read(index: int) -> Prompt:
        return prompts[index] if index < count else others[index - count]

    return LazyPrompts(texts, range(len(texts)), read)


def _at(prompts: Sequence[Prompt], kept: Sequence[int]) -> Sequence[Prompt]:
    return prompts.at(kept) if isinstance(prompts, LazyPrompts) else [prompts[i] for i in kept]


def split_prompts(
    prompts: Sequence[Prompt], share: float
) -> tuple[Sequence[Prompt], Sequence[Prompt] | None]:
    """The prompts to train on and those that a share holds out, None if there are none; PromptError
    where none is left to train on.
    """
    texts = texts_of(prompts)
    chosen = held_out_texts(texts, share)
    training = [i for i, text in enumerate(texts) if text not in chosen]
    if not training:
        raise PromptError(f"prompts.held_out_share={share:g} leaves none to train on")
    held_out = [i for i, text in enumerate(texts) if text in chosen]
    return _at(prompts, training), _at(prompts, held_out) if held_out else None


class RowReader:
    """Reads prompts from rows of data: from `column` (see `row_forms.prompt_column`), with the
    picture to be edited under `image_column` (None: none is read), by a path relative to `folder`.
    Rows without one of the columns `skip_empty` are left out.
    """

    def __init__(
        self,
        column: str = "prompt",
        image_column: str | None = None,
        folder: Path | None = None,
        skip_empty: Sequence[str] = (),
    ) -> None:
        self.column, self.image_column, self.folder = column, image_column, folder
        self.skip_empty = skip_empty
        self._used: str | None = None

    def read(self, where: str, row: Mapping[str, Any]) -> Prompt:
        """The prompt of a row; PromptError, with its place, where there is none, or it is in
        another form than that of the row before.
        """
        try:
            self._used = same_form(row, self.column, self._used)
            text, metadata = read_row(row, self.column)
        except EmptyCellError as error:
            remedy = f"fill it in, or leave such rows out: prompts.skip_empty=[{error.column}]"
            raise PromptError(f"{where}: {error}; {remedy}") from error
        except ValueError as error:
            raise PromptError(f"{where}: {error}") from error
        picture = None if self.image_column is None else metadata.get(self.image_column)
        if picture is None:
            return Prompt(text, metadata)
        try:
            edited = pictured(text, picture, self.folder)
        except ValueError as error:
            hint = "; prompts.image_column=null reads no pictures"
            raise PromptError(f"{where}: `{self.image_column}`: {error}{hint}") from error
        if isinstance(picture, str):
            metadata[str(self.image_column)] = edited.source
        else:  # large
            del metadata[str(self.image_column)]
        return Prompt(edited, metadata)

    def kept(self, rows: Collection[Mapping[str, Any]], name: object) -> Sequence[int]:
        """The indices of the rows that are not left out; PromptError where none is left."""
        if not self.skip_empty:
            return range(len(rows))
        left_out = [is_left_out(row, self.skip_empty) for row in rows]
        if any(left_out):
            message = "%s: %d of %d rows are left out, without %s (prompts.skip_empty)"
            columns = " or ".join(self.skip_empty)
            log.warning(message, name, sum(left_out), len(left_out), columns)
        if all(left_out):
            raise PromptError(f"{name}: no prompts; it has no row that is not left out")
        return [i for i, is_out in enumerate(left_out) if not is_out]

    def read_all(self, rows: Sequence[Placed], name: object) -> list[Prompt]:
        """The prompts of all rows that are not left out; raises as `read` and `kept`."""
        return [self.read(*rows[i]) for i in self.kept([row for _, row in rows], name)]


class PromptList(Prompts):
    """Lists of prompts to train on, at least one, and for `evaluation` (None: the same)."""

    separate = None

    def __init__(
        self, prompts: Sequence[Prompt], evaluation: Sequence[Prompt] | None = None
    ) -> None:
        self.prompts = prompts
        self.eval_prompts = prompts if evaluation is None else evaluation
        self.separate = False
        if evaluation is None:
            return
        evaluated = {*map(sameness, texts_of(evaluation))}
        trained = evaluated.intersection(map(sameness, self.texts()))
        self.separate = not trained
        if trained:
            message = "%d of the %d different evaluation prompts are training prompts too"
            log.warning(message, len(trained), len(evaluated))

    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` prompts, shuffled without replacement, repeated only if there are too few."""
        chosen = item_indices(len(self.prompts), count, seed=seed, iteration=iteration)
        return [self.prompts[i] for i in chosen]

    def known(self) -> Sequence[Prompt]:
        """The training prompts."""
        return self.prompts

    def texts(self) -> Sequence[str]:
        """The texts of the training prompts."""
        return texts_of(self.prompts)

    def held_out(self, count: int) -> list[Prompt]:
        """At most `count` prompts for evaluation, evenly spaced."""
        return [self.eval_prompts[i] for i in spread_indices(len(self.eval_prompts), count)]

    def leave_out(self, texts: Collection[str]) -> None:
        if not (kept := _without(self.prompts, texts)):
            raise PromptError("no prompt is left to train on")
        shared = self.eval_prompts is self.prompts
        self.eval_prompts = kept if shared else _without(self.eval_prompts, texts)
        self.prompts = kept


def _without(prompts: Sequence[Prompt], texts: Collection[str]) -> Sequence[Prompt]:
    return _at(prompts, [i for i, text in enumerate(texts_of(prompts)) if text not in texts])


class GivenPrompts(PromptList):
    """Prompts that a command gave, some with the path of a picture; they have no metadata."""

    metadata = ()
    pictures = None

    def __init__(self, *, texts: list[str], pictures: list[str | None] | None = None) -> None:
        pairs = zip(texts, pictures or [None] * len(texts), strict=True)
        given = (pictured(text, path) if path is not None else text for text, path in pairs)
        super().__init__([Prompt(text, {}) for text in given])
