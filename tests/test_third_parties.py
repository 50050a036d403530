"""The three doors for other people's rewards: an import path, a folder, an installed package."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]

CODE = """
from typing import Literal
import a_package_that_is_not_installed

class Sparkle:
    media = "images"

    def __init__(self, *, k: int = 2, mood: Literal["calm", "wild"] = "calm") -> None: ...
"""
FLAT = "# How much it sparkles\n_target_: {package}.Sparkle\nk: 3 # crystals\n"
GLOBAL = "# @package _global_\n# How much it glitters\nreward:\n  _target_: {package}.Sparkle\n"


@pytest.fixture
def sparkles(tmp_path: Path) -> Path:
    """A module in the current folder, importing which would fail: it is only read."""
    (tmp_path / "sparkles.py").write_text(CODE)
    return tmp_path


@pytest.fixture
def folder(sparkles: Path) -> Path:
    """A folder of options, with a space in its name."""
    place = sparkles / "my conf" / "reward"
    place.mkdir(parents=True)
    (place / "sparkle.yaml").write_text(FLAT.format(package="sparkles"))
    (place / "glitter.yaml").write_text(GLOBAL.format(package="sparkles"))
    return place.parent


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A site folder with an installed plug-in, and one whose package is gone."""
    site = tmp_path / "site"
    conf = site / "acme" / "conf" / "reward"
    conf.mkdir(parents=True)
    for name in ("acme/__init__.py", "acme/conf/__init__.py"):
        (site / name).write_text("")
    (site / "acme" / "rewards.py").write_text(CODE)
    (conf / "sparkle.yaml").write_text(FLAT.format(package="acme.rewards"))
    for name, module in (("acme", "acme.conf"), ("gone", "gone.conf")):
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[rlfactory.conf]\n{name} = {module}\n")
    return site


@pytest.mark.slow
def test_an_import_path_with_trust(command: Command, sparkles: Path) -> None:
    words = ["reward._target_=sparkles.Sparkle", "+reward.k=3"]
    refused = command("check", *words)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].endswith(" 'trust=[sparkles]'")
    shown = command("check", *words, "trust=[sparkles]")
    assert shown.returncode == 0, shown.stderr
    assert ["reward", "Sparkle"] in [line.split() for line in shown.stdout.splitlines()]


def test_an_import_path_is_checked_like_ours(here: Command, sparkles: Path) -> None:
    words = ["reward._target_=sparkles.Sparkle", "trust=[sparkles]"]
    shown = here("check", *words, "+reward.k=many", "+reward.mod=wild").stderr
    assert "reward.k: is 'many'; allowed is a whole number" in shown
    assert "Did you mean reward.mood?" in shown
    missing = here("check", "reward._target_=nowhere.X", "trust=[nowhere]")
    assert "there is no package 'nowhere'" in missing.stderr
    assert "in the folder that has it" in missing.stderr


@pytest.mark.slow
def test_a_folder(command: Command, folder: Path) -> None:
    listed = command("list", "reward", "-cd", "my conf").stdout
    lines = [line.split(maxsplit=1) for line in listed.splitlines()]
    assert ["sparkle", "How much it sparkles"] in lines
    assert ["glitter", "How much it glitters"] in lines
    assert any(name == "shapes" for name, _ in lines)
    for option in ("sparkle", "glitter"):
        shown = command("check", "-cd", "my conf", f"reward={option}", "trust=[sparkles]")
        assert shown.returncode == 0, shown.stderr
        assert ["reward", option] in [line.split() for line in shown.stdout.splitlines()]


@pytest.mark.parametrize("form", ["hydra.searchpath=[{0}]", "hydra.searchpath={0}"])
def test_a_folder_on_hydras_search_path(here: Command, folder: Path, form: str) -> None:
    plain = folder.rename(folder.with_name("conf"))
    listed = here("list", "reward", form.format(f"file://{plain}"))
    assert "How much it sparkles" in listed.stdout


def test_where_a_folders_value_comes_from(here: Command, folder: Path) -> None:
    shown = here("explain", "reward.k", "-cd", "my conf", "reward=sparkle", "reward.k=4")
    value, *_, in_file, typed = shown.stdout.splitlines()
    assert value == "reward.k = 4"
    assert in_file.split(maxsplit=1) == ["3", f"{folder}/reward/sparkle.yaml:3"]
    assert "command line: reward.k=4" in typed


def test_a_misspelt_key_in_a_folders_file(here: Command, folder: Path) -> None:
    file = folder / "reward" / "sparkle.yaml"
    file.write_text(file.read_text().replace("k: 3", "moood: calm"))
    shown = here("check", "-cd", "my conf", "reward=sparkle", "trust=[sparkles]")
    assert shown.returncode == 2
    (line,) = shown.stderr.splitlines()
    assert line.startswith("error: reward.moood: there is no such key")
    assert f"Did you mean reward.mood? (set in {file}:3)" in line


def test_a_folders_file_that_is_no_yaml(here: Command, folder: Path) -> None:
    (folder / "reward" / "sparkle.yaml").write_text("_target_: [x\n")
    shown = here("check", "-cd", "my conf", "reward=sparkle")
    assert shown.returncode == 2
    (line,) = shown.stderr.splitlines()
    assert f"{folder}/reward/sparkle.yaml" in line
    assert "Traceback" not in line


@pytest.mark.slow
def test_a_source_that_is_no_python(command: Command, sparkles: Path) -> None:
    (sparkles / "sparkles.py").write_text("class Sparkle(:\n")
    shown = command("check", "reward._target_=sparkles.Sparkle", "trust=[sparkles]")
    assert shown.returncode == 2
    assert "sparkles.py is no Python" in shown.stderr


@pytest.mark.slow
def test_an_installed_package(command: Command, package: Path) -> None:
    listed = command("list", "reward", path=(package,))
    assert listed.returncode == 0, listed.stderr
    assert ["sparkle", "How much it sparkles"] in [
        line.split(maxsplit=1) for line in listed.stdout.splitlines()
    ]
    shown = command("check", "reward=sparkle", path=(package,))
    assert shown.returncode == 0, shown.stderr  # its package is trusted because it is installed
    assert ["reward", "sparkle"] in [line.split() for line in shown.stdout.splitlines()]
    guess = command("check", "reward=sparkel", path=(package,))
    assert "Did you mean sparkle?" in guess.stderr
    whole = command("--cfg", "job", "reward=sparkle", path=(package,))
    assert "_target_: acme.rewards.Sparkle" in whole.stdout
