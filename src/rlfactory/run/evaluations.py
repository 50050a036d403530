"""The evaluations in a run folder: those on its own prompts, and those on further prompt sets."""

from collections.abc import Mapping
from contextlib import suppress

from rlfactory.run.folder import RunFolder
from rlfactory.run.scores import Scores
from rlfactory.utils.data_files import FileError

SetPairs = Mapping[str, tuple[Scores, Scores | None]]
"""The first and the last scores of each prompt set; None where there is no pair of them."""


def read_evaluations(folder: RunFolder) -> dict[int, Scores]:
    """The scores of a folder's evaluations in training by iteration, those that can be read."""
    found = {}
    for path in folder.evaluations.glob("*.json"):
        if path.stem.isdecimal():
            with suppress(FileError, FileNotFoundError):
                found[int(path.stem)] = Scores.load(path)
    return dict(sorted(found.items()))


def read_sets(folder: RunFolder) -> dict[str, dict[int, Scores]]:
    """The same of each further prompt set that was evaluated in training, by name."""
    sets = {name: read_evaluations(own) for name, own in folder.evaluated_sets().items()}
    return {name: evaluations for name, evaluations in sets.items() if evaluations}


def set_pairs(sets: Mapping[str, Mapping[int, Scores]], until: int | None = None) -> SetPairs:
    """Each set's first scores and its last ones, or those after `until` iterations."""
    pairs = {}
    for name, evaluations in sets.items():
        first, last = min(evaluations), max(evaluations) if until is None else until
        before, after = evaluations[first], evaluations.get(last) if last != first else None
        is_paired = after is not None and after.prompts == before.prompts
        pairs[name] = before, after if is_paired else None
    return pairs
