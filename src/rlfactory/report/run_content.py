"""The content of a run's page, read from the run folder as plain values."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rlfactory.config.frozen import try_frozen
from rlfactory.report.draw import Plot, plots
from rlfactory.report.labels import run_choices
from rlfactory.report.read import series_of
from rlfactory.report.run_curves import histogram, run_curves
from rlfactory.report.sample_pairs import choose, main_score, sample_pairs
from rlfactory.report.summary import cost, provenance, results, score_sections
from rlfactory.report.text_table import NONE, Section
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.metrics import Record, read
from rlfactory.run.scores import read_sets, set_pairs
from rlfactory.utils.data_files import read_shown
from rlfactory.utils.text import plural


class RunContent:
    """A run as its page shows it; what is missing or damaged in its folder is left out.

    `status` and `advice` are those in STATUS and in summary.md where they are not given.

    Attributes:
        main: the score that trains; empty before the first evaluation.
        facts: what the run is and what it cost, by name.
        ticks: the iterations that curves mark, those of evaluations.
        pairs: the first and the last scores on each prompt set.
        kinds: pairs of samples, by what they were chosen for; no pair twice.
        strip: the image of the same prompts over training.
        texts: the files of which the page shows the text, by title.
    """

    def __init__(
        self, folder: RunFolder, status: str | None = None, advice: Sequence[str] | None = None
    ) -> None:
        if status is None:
            with suppress(RunFolderError):
                status = folder.read_status()
        config = try_frozen(folder.config) or {}
        metrics = read(folder.metrics) if folder.metrics.exists() else []
        sets = read_sets(folder)
        own = sets.get("", {})
        further = {name: evaluations for name, evaluations in sets.items() if name}
        self.folder, self.name = folder, folder.path.absolute().name
        self.choices, self.main = run_choices(config), main_score(folder)
        self.facts = _facts(folder, config, metrics, status or NONE)
        self.curves = run_curves(series_of(metrics), self.main, own, further)
        self.ticks = sorted(own)
        self.pairs = set_pairs(sets)
        self.kinds = choose(sample_pairs(folder, self.main))
        self.strip = folder.strip if folder.strip.is_file() else None
        self.advice = _advice(folder) if advice is None else [*advice]
        files = {
            "Command": folder.command,
            "A prompt as the model is given it": folder.prompt,
            "What is learned after it": folder.completion,
            "Configuration": folder.config,
            "Plan": folder.plan,
        }
        texts = {title: read_shown(path).rstrip() for title, path in files.items()}
        self.texts = {title: text for title, text in texts.items() if text}

    @property
    def rows(self) -> list[str]:
        """The legend of lines and dots of the curves; the position is the color."""
        return [*dict.fromkeys(curve.row for curve in self.curves)]

    @property
    def sections(self) -> list[Section]:
        """The tables of scores."""
        return score_sections(self.pairs)

    @property
    def plots(self) -> list[Plot]:
        """The plots of the page: a panel each, and after the first one the scores' distribution."""
        drawn = plots(self.curves, self.rows, ticks=self.ticks)
        before, after = self.pairs.get("", (None, None))
        if before and after and (shown := histogram(before, after, self.main)):
            drawn.insert(1, shown)
        return drawn

    @property
    def links(self) -> list[tuple[str, str]]:
        """The other files that are there now, by what they are, relative to the folder."""
        folder = self.folder
        files = [
            *((name, path) for name, path in results(folder) if path != folder.page),
            ("configuration", folder.config),
            ("metrics of each iteration", folder.metrics),
            ("scores of the evaluations", folder.evaluations),
            ("inside the network", folder.inspection / "inspect.html"),
            ("log", folder.log),
        ]
        found = [(n, p.relative_to(folder.path).as_posix()) for n, p in files if p.exists()]
        return [("summary", folder.summary.name), *found]  # it is written after the page


def _facts(
    folder: RunFolder, config: Mapping[str, Any], metrics: Sequence[Record], status: str
) -> dict[str, str]:
    done = max((int(r["iteration"] or 0) for r in metrics), default=0)
    wanted = config.get("iterations")
    sizes = (config.get(key) for key in ("prompts_per_iteration", "group_size"))
    samples = math.prod(size if type(size) is int else 0 for size in sizes)
    facts = {
        "Status": f"{status}, iteration {done} of {wanted}" if wanted else status,
        "Samples": f"{plural(samples, 'sample')} an iteration" if samples else "",
        "Seed": str(config.get("seed", "")),
    }
    given = {**cost(metrics), **provenance(folder)}
    given.pop("command", None)
    facts |= {name[0].upper() + name[1:]: text for name, text in given.items()}
    return {name: text for name, text in facts.items() if text}


def _advice(folder: RunFolder) -> list[str]:
    """The advice in summary.md."""
    _, _, rest = read_shown(folder.summary).partition("\n## Advice\n")
    lines = rest.partition("\n## ")[0].splitlines()
    return [line.removeprefix("- ") for line in lines if line.startswith("- ")]
