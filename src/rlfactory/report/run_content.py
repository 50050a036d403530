"""What a run's page shows, read from the run folder as plain values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory.report.labels import evaluation_label, run_choices
from rlfactory.report.run_curves import RunCurves
from rlfactory.report.sample_pairs import SamplePair, choose, main_score, sample_pairs
from rlfactory.report.statistics import Change
from rlfactory.report.summary import changes, cost, provenance, results
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.metrics import Record, read
from rlfactory.run.scores import Scores, read_sets, set_pairs
from rlfactory.utils.data_files import FileError, read_shown
from rlfactory.utils.data_files import read_yaml as read_yaml_file
from rlfactory.utils.text import plural


@dataclass(frozen=True)
class RunContent:
    """A run as its page shows it.

    Attributes:
        main: the score that trains; empty before the first evaluation.
        facts: what the run is and what it cost, by name.
        table: the change of each score, over all prompts first and then by category.
        sets: the same of further prompt sets, by name.
        kinds: pairs of samples, by what they were chosen for; no pair twice.
        tags: of each pair in `kinds` everything that it was chosen for.
        strip: the image of the same prompts over training.
        texts: the files of which the page shows the text, by title.
    """

    folder: RunFolder
    name: str
    choices: str
    main: str
    label: str
    facts: dict[str, str]
    curves: RunCurves
    before: Scores | None
    after: Scores | None
    table: dict[str, dict[str, Change]]
    sets: dict[str, "SetContent"]
    kinds: dict[str, list[SamplePair]]
    tags: dict[int, list[str]]
    strip: Path | None
    advice: list[str]
    texts: dict[str, str]

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


@dataclass(frozen=True)
class SetContent:
    """The scores on a further prompt set before training, and the change of each."""

    label: str
    before: Scores
    table: dict[str, dict[str, Change]]


def run_content(
    folder: RunFolder, status: str | None = None, advice: Sequence[str] | None = None
) -> RunContent:
    """Read a run folder; what is missing or damaged in it is left out.

    `status` and `advice` are those in STATUS and in summary.md where they are not given.
    """
    config = read_yaml(folder.config)
    metrics = read(folder.metrics) if folder.metrics.exists() else []
    sets = read_sets(folder)
    evaluations = sets.pop("", {})
    main = main_score(folder)
    moments = sorted(evaluations)
    before = evaluations[moments[0]] if moments else None
    after = evaluations[moments[-1]] if len(moments) > 1 else None
    is_paired = before is not None and after is not None and before.prompts == after.prompts
    kinds, tags = _kinds(sample_pairs(folder, main))
    label = evaluation_label(evaluations.values())
    return RunContent(
        folder=folder,
        name=folder.path.absolute().name,
        choices=run_choices(config),
        main=main,
        label=label,
        facts=_facts(folder, config, metrics, status or _status(folder)),
        curves=RunCurves(metrics, main or None, evaluations, moments, label, sets),
        before=before,
        after=after,
        table=changes(before, after) if before and after and is_paired else {},
        sets={
            name: SetContent(evaluation_label([first]), first, changes(first, last) if last else {})
            for name, (first, last) in set_pairs(sets).items()
        },
        kinds=kinds,
        tags=tags,
        strip=folder.strip if folder.strip.is_file() else None,
        advice=_advice(folder) if advice is None else [*advice],
        texts=_texts(folder),
    )


def read_yaml(path: Path) -> Mapping[str, Any]:
    """A configuration; empty where it can't be read."""
    try:
        content = read_yaml_file(path)
    except (FileError, FileNotFoundError):
        return {}
    return content if isinstance(content, dict) else {}


def _status(folder: RunFolder) -> str:
    try:
        return folder.read_status()
    except RunFolderError:
        return "–"


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


def _kinds(pairs: list[SamplePair]) -> tuple[dict[str, list[SamplePair]], dict[int, list[str]]]:
    """The pairs by what they were chosen for, each once, and all that each was chosen for."""
    tags: dict[int, list[str]] = {id(pair): [] for pair in pairs}
    kinds: dict[str, list[SamplePair]] = {}
    for title, some in choose(pairs).items():
        if fresh := [pair for pair in some if not tags[id(pair)]]:
            kinds[title] = fresh
        for pair in some:
            tags[id(pair)].append(title)
    if rest := [pair for pair in pairs if not tags[id(pair)]]:
        kinds["All others"] = rest
    return kinds, tags


def _advice(folder: RunFolder) -> list[str]:
    """The advice in summary.md."""
    text = read_shown(folder.summary)
    _, _, rest = text.partition("\n## Advice\n")
    lines = rest.partition("\n## ")[0].splitlines()
    return [line.removeprefix("- ") for line in lines if line.startswith("- ")]


def _texts(folder: RunFolder) -> dict[str, str]:
    files = {
        "Command": folder.command,
        "A prompt as the model is given it": folder.prompt,
        "What is learned after it": folder.completion,
        "Configuration": folder.config,
        "Plan": folder.plan,
    }
    return {title: text for title, path in files.items() if (text := read_shown(path).rstrip())}
