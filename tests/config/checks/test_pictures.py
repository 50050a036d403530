"""Rules on prompts with pictures."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError

KONTEXT = (
    *("model=flux_kontext", "prompts=file", "prompts.path=mine.jsonl", "reward=compressibility"),
    "recipe=none",
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (64, 64)).save(tmp_path / "square.png")
    Image.new("RGB", (64, 32)).save(tmp_path / "wide.png")
    (tmp_path / "text.png").write_text("no picture")


def write(*rows: object) -> None:
    Path("mine.jsonl").write_text("\n".join(json.dumps(row) for row in rows))


def told(*words: str) -> list[tuple[str, str, str]]:
    try:
        plan_from_words(*words)
    except PlanError as error:
        return [(problem.key, problem.message, problem.fix) for problem in error.problems]
    return []


SQUARE: dict[str, Any] = {"prompt": "a", "image": "square.png"}


@pytest.mark.parametrize(
    ("row", "said", "fix"),
    [
        ({"image": "none.png"}, "mine.jsonl, prompt 2: there is no picture", ""),
        ({"image": "text.png"}, "text.png can't be read as a picture", ""),
        ({"image": 3}, "a picture is the path of a file, not 3", ""),
        ({}, "prompt 2: has no picture under image", ""),
        (
            {"image": "wide.png"},
            "wide.png has 32 x 64 pixels, and pictures are resized to model.size, 512 x 512",
            "model.size=[368,720]",
        ),
    ],
    ids=str,
)
def test_pictures_of_a_file(row: dict[str, Any], said: str, fix: str) -> None:
    write(SQUARE, {"prompt": "b", **row})
    ((key, message, given),) = told(*KONTEXT)
    assert key == "prompts.path"
    assert said in message
    assert given == fix


def test_what_the_fix_says_works() -> None:
    write({"prompt": "b", "image": "wide.png"})
    assert told(*KONTEXT, "model.size=[368,720]") == []
    write(SQUARE)
    assert told(*KONTEXT) == []


def test_prompts_without_pictures() -> None:
    write({"prompt": "b"})
    messages = [message for _, message, _ in told(*KONTEXT)]
    assert any("have no pictures, and this model edits pictures" in text for text in messages)
    ((key, message, fix),) = told("model=flux_kontext", "prompts=preferences", "reward=pickscore")
    assert (key, fix) == ("prompts", "prompts=edits")
    assert "have no pictures" in message


def test_pictures_for_a_model_that_takes_none() -> None:
    write(SQUARE)
    words = ("model=flux", *KONTEXT[1:])
    ((key, message, fix),) = told(*words)
    assert (key, fix) == ("prompts", "prompts.image_column=null")
    assert "this model takes none; model=flux_kontext does" in message
    assert told(*words, fix) == []
    ((key, _, fix),) = told("model=tiny_sd3", "prompts=edits")
    assert (key, fix) == ("prompts", "model=flux_kontext")
