"""Prompts in the manner of GenEval 2: words and questions that agree, and a split that holds."""

import json
from pathlib import Path

import numpy as np
import pytest

from rlfactory.prompts.file import read_prompts
from rlfactory.prompts.geneval2 import (
    ATTRIBUTES,
    OBJECTS,
    RELATIONS,
    GenEval2Prompts,
    PromptPart,
    prompt,
)
from rlfactory.prompts.ops.held_out import is_held_out
from rlfactory.reward.geneval2 import questions_problem


def test_a_part_is_asked_about_in_its_number() -> None:
    several = PromptPart("bicycle", 4, "white")
    assert several.words == "four white bicycles"
    assert [*several.questions()] == [
        ("count", "How many bicycles are in the image?", "four"),
        ("attribute", "Are the bicycles white?", "Yes"),
        ("object", "Are there any bicycles in the image?", "Yes"),
    ]
    one = PromptPart("umbrella", 1, None)
    assert (one.words, one.subject) == ("an umbrella", "Is the umbrella")
    assert [answer for *_, answer in one.questions()] == ["one", "Yes"]


def test_words_and_questions_agree() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        drawn = prompt(rng, 3)
        questions = [question for question, _ in drawn.metadata["vqa_list"]]
        skills = drawn.metadata["skills"]
        assert questions_problem(drawn.metadata) is None
        assert len(skills) == len(questions)
        assert skills.count("object") == skills.count("count")
        assert skills.count("attribute") == sum(w in ATTRIBUTES for w in drawn.text.split())
        related = [r for r in RELATIONS if f" {r} " in f" {drawn.text} "]
        assert bool(related) == ("position" in skills)
        for question, skill in zip(questions, skills, strict=True):
            if skill == "object":
                name = question.removeprefix("Are there any ").removesuffix("s in the image?")
                assert name in OBJECTS
                assert name in drawn.text
        alone = sum(answer == "one" for _, answer in drawn.metadata["vqa_list"])
        assert drawn.metadata["atom_count"] == len(questions) - alone


def test_training_draws_nothing_held_out_and_nothing_twice() -> None:
    source = GenEval2Prompts()
    for iteration in range(4):
        texts = [p.text for p in source.draw(48, seed=0, iteration=iteration)]
        assert len({*texts}) == 48
        assert not any(is_held_out(text) for text in texts)
    held_out = source.held_out(64)
    assert all(is_held_out(p.text) for p in held_out)
    assert source.held_out(8) == held_out[:8]


def test_draws_are_keyed() -> None:
    keys = ((0, 4), (0, 5), (1, 4), (0, 4))
    draws = [GenEval2Prompts().draw(8, seed=s, iteration=i) for s, i in keys]
    assert draws[0] == draws[3]
    assert draws[0] not in draws[1:3]


@pytest.mark.parametrize("parts", [1, 2])
def test_parts_are_the_most(parts: int) -> None:
    drawn = GenEval2Prompts(parts=parts).draw(40, seed=0, iteration=0)
    found = {p.metadata["skills"].count("object") for p in drawn}
    assert found == {*range(1, parts + 1)}


def test_the_benchmarks_own_lines_are_read(tmp_path: Path) -> None:
    line = {
        "prompt": "four white bicycles in front of three plastic cows",
        "atom_count": 7,
        "vqa_list": [["How many bicycles are in the image?", "four"]],
        "skills": ["count"],
    }
    file = tmp_path / "geneval2_data.jsonl"
    file.write_text(json.dumps(line))
    (found,) = read_prompts(file)
    assert questions_problem(found.metadata) is None
