"""The evaluations in a run folder, by prompt set."""

import json
from pathlib import Path

import numpy as np
import pytest

from rlfactory.report.labels import evaluation_label
from rlfactory.run.folder import RunFolder
from rlfactory.run.scores import Scores, read_evaluations, read_sets, set_pairs
from rlfactory.utils.data_files import FileError

NAN = float("nan")


def example() -> Scores:
    return Scores(
        prompts=["a red star", "zwei Kreise – «œuvre»", "a cross"],
        values={"strict": np.array([1.0, 0.0, NAN]), "soft": np.float32([0.1, 1 / 3, 1e-9])},
        categories=["colors", "counting", "colors"],
        diversity=0.25,
        texts={"repetition": 0.125},
    )


def test_saved_and_loaded_is_the_same(tmp_path: Path) -> None:
    scores = example()
    scores.save(tmp_path / "evaluations" / "000000.json")
    loaded = Scores.load(tmp_path / "evaluations" / "000000.json")
    assert loaded.prompts == scores.prompts
    assert loaded.categories == scores.categories
    assert loaded.diversity == 0.25
    assert loaded.texts == {"repetition": 0.125}
    for name, array in scores.values.items():
        np.testing.assert_array_equal(loaded.values[name], array)
        assert loaded.values[name].dtype == np.float64


def test_the_file_is_strict_json_with_null(tmp_path: Path) -> None:
    Scores(prompts=["a"], values={"x": np.array([NAN])}).save(tmp_path / "s.json")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    content = json.loads((tmp_path / "s.json").read_text(), parse_constant=refuse)
    assert content == {
        "diversity": None,
        "kl": None,
        "texts": {},
        "separate": False,
        "noises": 1,
        "prompts": ["a"],
        "categories": None,
        "better": {},
        "scores": {"x": [None]},
    }
    assert np.isnan(Scores.load(tmp_path / "s.json").diversity)


def test_prompts_are_called_held_out_only_where_they_are_separate(tmp_path: Path) -> None:
    for separate, label in ((True, "held-out prompts"), (False, "evaluation prompts")):
        Scores(prompts=["a"], values={}, separate=separate).save(tmp_path / "s.json")
        assert evaluation_label([Scores.load(tmp_path / "s.json")]) == label
    former = json.loads((tmp_path / "s.json").read_text())
    del former["separate"]
    (tmp_path / "s.json").write_text(json.dumps(former))
    assert not Scores.load(tmp_path / "s.json").separate, "an older file does not say"


def test_means_leave_out_what_was_not_scored() -> None:
    assert example().means()["strict"] == 0.5
    assert np.isnan(Scores(prompts=["a"], values={"x": np.array([NAN])}).means()["x"])


def test_parts_are_the_categories() -> None:
    parts = {kind: mask.tolist() for kind, mask in example().category_masks().items()}
    assert parts == {"colors": [True, False, True], "counting": [False, True, False]}
    assert Scores(prompts=["a"], values={}).category_masks() == {}


def test_scores_by_prompt_are_means_over_its_samples() -> None:
    values = {"x": np.array([1.0, NAN, NAN, 0.0, 2.0, NAN])}
    scores = Scores(prompts=["a", "b", "c"] * 2, values=values, noises=2)
    np.testing.assert_array_equal(scores.by_prompt("x"), [0.5, 2.0, NAN])
    alone = Scores(prompts=["a"] * 6, values=values)
    np.testing.assert_array_equal(alone.by_prompt("x"), values["x"])


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="3 samples, 2 of each prompt"):
        Scores(prompts=["a", "b", "c"], values={}, noises=2)
    with pytest.raises(ValueError, match="'x': 3"):
        Scores(prompts=["a"], values={"x": np.zeros(3)})
    with pytest.raises(ValueError, match="categories"):
        Scores(prompts=["a"], values={}, categories=[])


def test_what_is_better_is_kept_and_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    Scores(["a"], {"x": np.array([1.0])}, better={"x": "lower"}).save(path)
    assert Scores.load(path).better == {"x": "lower"}
    content = json.loads(path.read_text())
    del content["better"]
    path.write_text(json.dumps(content))
    assert Scores.load(path).better == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"prompts": ["a"], "scores": {"x": [1]}, "categories": null}',
        '{"prompts": ["a"], "scores": {"x": [1, 2]}, "categories": null, "diversity": null}',
        '{"prompts": ["a"], "scores": {"x": ["1"]}, "categories": null, "diversity": null}',
        '{"prompts": [1], "scores": {"x": [1]}, "categories": null, "diversity": null}',
        '{"prompts": ["a"], "scores": [], "categories": null, "diversity": null}',
        '{"prompts": ["a"], "scores": {}, "categories": null, "diversity": null, "noises": 0}',
    ],
)
def test_what_is_no_evaluation_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "000000.json"
    path.write_text(text)
    with pytest.raises(FileError, match=r"000000.json: .*; remove it"):
        Scores.load(path)


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
