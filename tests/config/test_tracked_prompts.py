"""A plan says how many groups a tracker compares with their own prompt's rewards."""

import subprocess
import sys
from pathlib import Path

import pytest

from rlfactory.config.overrides import plan_from_words

TRACKED = ("algo=ddpo", "advantage.min_count=16", "iterations=12")


def notes(*words: str) -> list[str]:
    derived = plan_from_words(*words).derived
    return [text for key, text in derived.items() if key.startswith("note") and "groups" in text]


def test_prompts_that_hardly_recur_are_told_with_a_remedy() -> None:
    (note,) = notes(*TRACKED)
    assert note.startswith("most of the 96 groups will have fewer than advantage.min_count=16")
    remedy = note.partition("batch: ")[2].split()[0]
    assert remedy == "advantage.min_count=12"
    assert notes(*TRACKED, remedy) == []


def test_small_groups_are_told_of_the_batch() -> None:
    alone = ["iterations=12", "group_size=1", "prompts_per_iteration=96"]
    (note,) = notes("algo=ddpo", *alone)
    assert "most of the 1152 groups" in note
    assert "advantage=batch is that from the start" in note
    assert notes("algo=ddpo", "advantage=batch", *alone) == []


def test_prompts_that_recur_are_not(tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("a cat\na dog\n")
    file = ["prompts=file", f"prompts.path={tmp_path / 'few.txt'}", "reward=compressibility"]
    assert notes(*TRACKED, *file, "prompts_per_iteration=2") == []
    # DDPO's own: 64 draws of each of 398 animals, so that three of four groups have 16
    assert notes("experiment=peer/ddpo") == []
    assert len(notes("experiment=peer/ddpo", "iterations=20")) == 1


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
