"""Files that are listed once and used again are as if they were listed anew."""

import os
import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rlfactory.config import composition, options
from rlfactory.config.composition import Composition
from rlfactory.config.options import packaged_folder
from rlfactory.config.overrides import compose


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The choices that are listed from now on, of which nothing was kept before."""
    made: list[list[str]] = []
    found = composition.listed
    monkeypatch.setattr(
        composition, "listed", lambda chosen, *more: made.append([*chosen]) or found(chosen, *more)
    )
    composition._listed.cache_clear()
    made.clear()
    return made


def test_choices_are_listed_once_and_values_are_each_ones_own(listed: list[list[str]]) -> None:
    first = compose(["algo=grpo", "seed=3"])
    again = compose(["algo=grpo"])
    assert listed == [["algo=grpo"]]
    assert (first.values["seed"], again.values["seed"]) == (3, 0)
    assert first.choices == again.choices
    assert {**again.values, "seed": 3} == first.values
    Composition.of(["algo=nft"])
    assert listed == [["algo=grpo"], ["algo=nft"]]


def test_a_file_that_is_edited_is_read_again(
    listed: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(packaged_folder("conf"), tmp_path / "conf")
    monkeypatch.setattr(options, "packaged_folder", lambda name: tmp_path / name)
    assert Composition.of([]).values["seed"] == 0
    file = tmp_path / "conf" / "config.yaml"
    file.write_text(file.read_text().replace("\nseed: 0", "\nseed: 5"))
    os.utime(file, (1, 1))  # even where clocks are coarse
    assert Composition.of([]).values["seed"] == 5


def test_others_files_are_always_read(tmp_path: Path) -> None:
    option = tmp_path / "reward" / "own.yaml"
    option.parent.mkdir()
    place = f"file://{tmp_path}"
    for number in (1, 2):
        option.write_text(f"# @package _global_\n# One's own\nreward:\n  k: {number}\n")
        os.utime(option, (number, number))
        assert Composition.of(["reward=own"], [place]).values["reward"]["k"] == number


def test_a_list_of_defaults_may_name_a_choice(tmp_path: Path) -> None:
    for option, content in {
        "recipe/mine": "defaults:\n  - /mine: of_${logger}\n  - _self_\n",
        "mine/of_wandb": "seed: 7\n",
    }.items():
        file = tmp_path / f"{option}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"# @package _global_\n# One's own\n{content}")
    place = f"file://{tmp_path}"
    assert Composition.of(["recipe=mine", "logger=wandb"], [place]).values["seed"] == 7


def test_a_file_without_the_line_lies_below_its_group(tmp_path: Path) -> None:
    (tmp_path / "reward").mkdir()
    (tmp_path / "reward" / "mine.yaml").write_text("_target_: a.B\nk: 3\n")
    place = f"file://{tmp_path}"
    found = Composition.of(["reward=mine"], [place])
    assert found.values["reward"] == {"_target_": "a.B", "k": 3}


def test_it_knows_the_folder_that_it_is_used_in(
    listed: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["run_dir=${hydra:runtime.cwd}/here"]
    compose(words)
    monkeypatch.chdir(tmp_path)
    assert compose(words).values["run_dir"] == f"{tmp_path}/here"
    assert listed == [[]]


def test_a_callers_own_application_reads_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OF_THE_CALLER", "seen")
    compose(["algo=grpo"])
    assert OmegaConf.create({"a": "${oc.env:OF_THE_CALLER}"}).a == "seen"
