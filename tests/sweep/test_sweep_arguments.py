"""The words after `rlfactory sweep`."""

from pathlib import Path

import pytest

from rlfactory.config.problems import PlanError
from rlfactory.sweep.sweep_arguments import read_request


def test_nothing_but_a_name() -> None:
    found = read_request(["vgrpo"])
    assert (found.name, found.size, found.typed, found.seeds) == ("vgrpo", "full", [], None)
    assert (found.jobs, found.gpus, found.launcher, found.sweeper) == (None, None, "pool", None)


def test_each_word_in_its_place() -> None:
    words = ["x", "size=tiny", "seed=0,2", "jobs=3", "gpus=1,2", "rows=[a,b-*]", "--plan"]
    words += ["sweep_dir=~/s", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "trials=4"]
    words += ["hydra/sweeper=random", "search.a.b=log(1,2)", "algo=nft", "group_size=4,8"]
    found = read_request(words)
    assert (found.size, found.seeds, found.jobs) == ("tiny", [0, 2], 3)
    assert (found.gpus, found.rows, found.only_plan) == (["1", "2"], ["a", "b-*"], True)
    assert found.folder == Path.home() / "s"
    assert (found.launcher, found.launcher_words) == ("joblib", ["hydra.launcher.n_jobs=2"])
    assert (found.sweeper, found.trials, found.search) == ("random", 4, {"a.b": "log(1,2)"})
    assert (found.typed, found.axes) == (["algo=nft"], {"group_size": ["4", "8"]})


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", [3]), ("[0,1]", [0, 1]), ("range(2)", [0, 1]), ("2,0", [2, 0])]
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert read_request(["x", f"seed={text}"]).seeds == seeds


def test_a_list_is_one_value() -> None:
    assert read_request(["x", "reward.of=[a,b]"]).typed == ["reward.of=[a,b]"]
    assert read_request(["x", "gpus=auto"]).gpus is None


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("seed=", "seed: is empty; allowed are different whole numbers"),
        ("seed=[]", "seed: is []"),
        ("seed=a", "seed: is a"),
        ("seed=-1", "seed: is -1"),
        ("seed=1,1", "seed: is 1,1"),
        ("jobs=0", "jobs: is 0; allowed are 1 or more"),
        ("trials=some", "trials: is some"),
        ("hydra/launcher=slurm", "hydra/launcher: there is no launcher slurm"),
        ("hydra/sweeper=optna", "hydra/sweeper: there is no sweeper optna"),
        (
            "run_dir=x",
            "run_dir: differs for each run; set the folder of all runs by sweep_dir=FOLDER",
        ),
        ("--pln", "--pln: is neither --plan nor KEY=VALUE"),
    ],
)
def test_what_makes_no_sense(word: str, said: str) -> None:
    with pytest.raises(PlanError) as refused:
        read_request(["x", word])
    assert said in str(refused.value)


def test_all_at_once() -> None:
    with pytest.raises(PlanError) as refused:
        read_request(["x", "seed=a", "jobs=0"])
    assert [p.key for p in refused.value.problems] == ["seed", "jobs"]


@pytest.mark.parametrize(("word", "instead"), [("--dry-run", ("--plan",)), ("tiny", None)])
def test_what_is_suggested_for_a_word_can_be_typed(
    word: str, instead: tuple[str, ...] | None
) -> None:
    with pytest.raises(PlanError) as refused:
        read_request(["x", word])
    assert (refused.value.problems[0].fix, refused.value.problems[0].instead) == ("", instead)
