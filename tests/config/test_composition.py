"""What is merged once and used again is as if it were merged anew."""

import os
import shutil
from pathlib import Path

import pytest

from rlfactory.config import _hydra, composition, paths
from rlfactory.config._hydra import parse
from rlfactory.config.composition import Composition
from rlfactory.config.paths import packaged_folder


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The choices that are merged from now on, of which nothing was kept before."""
    made: list[list[str]] = []
    merge = composition.merged
    monkeypatch.setattr(
        composition, "merged", lambda chosen: made.append([*chosen]) or merge(chosen)
    )
    composition._cached.cache_clear()
    made.clear()
    return made


def test_choices_are_merged_once_and_values_are_each_ones_own(merged: list[list[str]]) -> None:
    first = Composition(["algo=grpo"]).changed(parse(["seed=3"]))
    again = Composition(["algo=grpo"]).changed()
    assert merged == [["algo=grpo"]]
    assert (first.values["seed"], again.values["seed"]) == (3, 0)
    assert first.choices == again.choices
    assert {**again.values, "seed": 3} == first.values
    Composition(["algo=nft"])
    assert merged == [["algo=grpo"], ["algo=nft"]]


def test_a_file_that_is_edited_is_read_again(
    merged: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(packaged_folder("conf"), tmp_path / "conf")
    for module in (_hydra, paths):
        monkeypatch.setattr(module, "packaged_folder", lambda name: tmp_path / name)
    assert Composition([]).values["seed"] == 0
    file = tmp_path / "conf" / "config.yaml"
    file.write_text(file.read_text().replace("\nseed: 0", "\nseed: 5"))
    os.utime(file, (1, 1))  # even where clocks are coarse
    assert Composition([]).values["seed"] == 5


def test_others_files_are_always_read(merged: list[list[str]], tmp_path: Path) -> None:
    option = tmp_path / "reward" / "own.yaml"
    option.parent.mkdir()
    words = [f"hydra.searchpath=['file://{tmp_path}']", "reward=own"]
    for number in (1, 2):
        option.write_text(f"# @package _global_\n# One's own\nreward:\n  k: {number}\n")
        assert Composition(words).values["reward"]["k"] == number


def test_a_list_of_defaults_may_name_a_choice(tmp_path: Path) -> None:
    for option, content in {
        "recipe/mine": "defaults:\n  - /mine: of_${logger}\n  - _self_\n",
        "mine/of_wandb": "seed: 7\n",
    }.items():
        file = tmp_path / f"{option}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"# @package _global_\n# One's own\n{content}")
    words = [f"hydra.searchpath=['file://{tmp_path}']", "recipe=mine", "logger=wandb"]
    assert Composition(words).values["seed"] == 7


def test_it_knows_the_folder_that_it_is_used_in(
    merged: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = parse(["run_dir=${hydra:runtime.cwd}/here"])
    Composition([]).changed(words)
    monkeypatch.chdir(tmp_path)
    assert Composition([]).changed(words).values["run_dir"] == f"{tmp_path}/here"
    assert merged == [[]]
