"""The samples of a run's first and last evaluation, prompt by prompt, as its folder keeps them."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from PIL import Image

from rlfactory.run.folder import RunFolder
from rlfactory.run.samples import SampleTable, image_file
from rlfactory.run.scores import read_evaluations
from rlfactory.utils.data_files import FileError
from rlfactory.utils.images import read_image

SHOWN = 4
"""How many samples each kind of choice shows."""


@dataclass(frozen=True)
class Sample:
    """One sample: its main score, NaN without one, and its text or its image file."""

    score: float
    text: str | None = None
    image: Path | None = None


@dataclass(frozen=True)
class SamplePair:
    """The samples of one prompt and the same noise before and after training.

    `tags` are the kinds that it was chosen for.
    """

    prompt: str
    before: Sample
    after: Sample
    tags: list[str] = field(default_factory=list)

    @property
    def change(self) -> float:
        """The score after training minus the one before."""
        return self.after.score - self.before.score


def readable_rows(rows: Iterable[Sequence[Path]]) -> Iterator[tuple[int, list[Image.Image]]]:
    """The number and the images of each row of files that can all be read, one row at a time.

    What a run kept may have been removed or changed since.
    """
    for number, row in enumerate(rows):
        try:
            images = [read_image(path) for path in row]
        except OSError:
            continue
        yield number, images


def evaluated(folder: RunFolder) -> list[int]:
    """The iterations of which the folder has a table of samples, in order."""
    stems = [path.stem.removeprefix("eval_") for path in folder.samples.glob("eval_*.json")]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def _table(folder: RunFolder, iteration: int) -> SampleTable | None:
    """An evaluation's table of samples; None where it can't be read."""
    try:
        return SampleTable.load(folder.samples / f"eval_{iteration:06d}.json")
    except (FileError, FileNotFoundError):
        return None


def samples_at(folder: RunFolder, iteration: int, main: str) -> list[tuple[str, Sample]]:
    """Prompt and sample of each row of an evaluation's table; none where it can't be read."""
    if (table := _table(folder, iteration)) is None:
        return []
    found = []
    for number, row in enumerate(table.rows):
        cells = dict(zip(table.columns, row, strict=True))
        score, text = cells.get(main), str(cells["response"]) if "response" in cells else None
        file = image_file(folder.samples, iteration, number)
        image = file if text is None and file.is_file() else None
        known = float(score) if isinstance(score, int | float) else math.nan
        found.append((str(cells["prompt"]), Sample(known, text, image)))
    return found


def sample_pairs(folder: RunFolder, main: str) -> list[SamplePair]:
    """The samples before training and at the last evaluation, of the prompts that both show.

    None before the second evaluation; an image that was not kept is missing in its sample.
    """
    iterations = evaluated(folder)
    if len(iterations) < 2:
        return []
    first, last = (samples_at(folder, i, main) for i in (iterations[0], iterations[-1]))
    rows = zip(first, last, strict=False)
    return [SamplePair(p, before, after) for (p, before), (other, after) in rows if p == other]


def choose(pairs: Sequence[SamplePair], count: int = SHOWN) -> dict[str, list[SamplePair]]:
    """The most changed, the best and the worst samples, by what they are, and then all others.

    At most `count` of each kind, and at most a quarter of all. A pair of several kinds stands in
    the first one, and all of them in its `tags`.
    """
    scored = [pair for pair in pairs if not math.isnan(pair.change)]
    count = max(1, min(count, len(scored) // 4))
    by_change = sorted(scored, key=lambda pair: -pair.change)
    by_score = sorted(scored, key=lambda pair: -pair.after.score)
    chosen = {
        "Most improved": [pair for pair in by_change[:count] if pair.change > 0],
        "Most worsened": [pair for pair in by_change[::-1][:count] if pair.change < 0],
        "Best after training": by_score[:count],
        "Worst after training": by_score[::-1][:count],
    }
    places = {title: {*map(id, some)} for title, some in chosen.items()}
    tags = {id(p): [title for title, ids in places.items() if id(p) in ids] for p in pairs}
    kinds = {
        title: [replace(p, tags=tags[id(p)]) for p in some if tags[id(p)][0] == title]
        for title, some in chosen.items()
    }
    kinds["All others"] = [pair for pair in pairs if not tags[id(pair)]]
    return {title: some for title, some in kinds.items() if some}


def main_score(folder: RunFolder) -> str:
    """The name of the score that is shown first: of a table of samples, or of an evaluation; empty
    without one.
    """
    for iteration in evaluated(folder):
        if table := _table(folder, iteration):
            return next((name for name in table.columns if name not in ("prompt", "response")), "")
    return next((name for s in read_evaluations(folder).values() for name in s.values), "")
