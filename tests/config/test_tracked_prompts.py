"""A plan says how many groups a tracker compares with their own prompt's rewards."""

import subprocess
import sys
from pathlib import Path

import pytest

from rlfactory.config.evaluation_prompts import own_statistics
from rlfactory.config.overrides import plan_from_words
from rlfactory.prompts.shapes import ShapesPrompts

TRACKED = ("algo=ddpo", "advantage.min_count=16", "iterations=12")


def notes(*words: str) -> list[str]:
    derived = plan_from_words(*words).derived
    return [text for key, text in derived.items() if key.startswith("note") and "groups" in text]


def test_prompts_that_hardly_recur_are_told_with_a_remedy() -> None:
    (note,) = notes(*TRACKED)
    assert note.startswith("9 of 96 groups will have advantage.min_count=16 rewards of their own")
    remedy = note.partition("batch: ")[2].split()[0]
    assert remedy == "advantage.min_count=12"
    assert notes(*TRACKED, remedy) == []


def test_small_groups_are_told_of_the_batch() -> None:
    alone = ["iterations=12", "group_size=1", "prompts_per_iteration=96"]
    (note,) = notes("algo=ddpo", *alone)
    assert " of 1152 groups" in note
    assert "advantage=batch is that from the start" in note
    assert notes("algo=ddpo", "advantage=batch", *alone) == []
    (note,) = notes("algo=ddpo", *alone[1:])
    assert " of the first 2016 groups" in note


def test_prompts_that_recur_are_not(tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("a cat\na dog\n")
    file = ["prompts=file", f"prompts.path={tmp_path / 'few.txt'}", "reward=compressibility"]
    assert notes(*TRACKED, *file, "prompts_per_iteration=2") == []
    # DDPO's own: 64 draws of each of 398 animals, so that three of four groups have 16
    assert notes("experiment=peer/ddpo") == []
    assert len(notes("experiment=peer/ddpo", "iterations=20")) == 1


def test_groups_are_counted_as_the_tracker_counts() -> None:
    config = {"prompts_per_iteration": 8, "group_size": 12, "iterations": 12, "seed": 0}
    prompts = ShapesPrompts()
    assert own_statistics(prompts, config, 12) == (96, 96)
    assert own_statistics(prompts, config, 10**6) == (0, 96)
    # of an endless source the first 2,000 groups
    own, groups = own_statistics(prompts, {**config, "iterations": 10_000}, 13)
    assert groups == 2000
    assert 0 < own < groups


@pytest.mark.parametrize("algo", ["ddpo", "ddpo_sf"])
def test_by_default_groups_have_their_own_statistics(algo: str) -> None:
    plan = plan_from_words(f"algo={algo}")
    assert plan.config["advantage"]["min_count"] == plan.config["group_size"]
    assert notes(f"algo={algo}") == []


@pytest.mark.slow
def test_counting_needs_no_torch() -> None:
    code = (
        "import sys; from rlfactory.config.overrides import plan_from_words;"
        " plan_from_words('algo=ddpo', 'advantage.min_count=16');"
        " assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
