"""The evaluations in a run folder, by prompt set."""

from pathlib import Path

import numpy as np

from rlfactory.run.evaluations import read_evaluations, read_sets, set_pairs
from rlfactory.run.folder import RunFolder
from rlfactory.run.scores import Scores


def scores(value: float, *prompts: str) -> Scores:
    return Scores([*prompts], {"ocr": np.full(len(prompts), value)})


def test_evaluations_of_training_are_read_in_order_and_damaged_ones_left_out(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path)
    for name in ("000010", "000002", "2026-11-23_10-00-00-0"):
        scores(0.5, "a").save(folder.evaluations / f"{name}.json")
    folder.evaluation(5).write_text("{")
    assert [*read_evaluations(folder)] == [2, 10]


def test_sets_without_an_evaluation_of_training_are_none(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    scores(0.5, "a").save(folder.prompt_set("signs").evaluation(0))
    scores(0.5, "a").save(folder.prompt_set("later").evaluations / "2026-11-23.json")
    assert {name: [*own] for name, own in read_sets(folder).items()} == {"signs": [0]}


def test_a_pair_is_of_the_same_prompts() -> None:
    first, middle, last = (scores(v, "a", "b") for v in (0.1, 0.2, 0.3))
    sets = {"x": {0: first, 2: middle, 4: last}}
    assert set_pairs(sets) == {"x": (first, last)}
    assert set_pairs(sets, 2) == {"x": (first, middle)}
    assert set_pairs(sets, 3) == set_pairs({"x": {0: first}}) == {"x": (first, None)}
    assert set_pairs({"x": {0: first, 4: scores(0.3, "a")}}) == {"x": (first, None)}
