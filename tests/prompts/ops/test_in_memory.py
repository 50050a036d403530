"""Prompts that a Python caller hands over."""

import pytest
from datasets import Dataset

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.in_memory import InMemoryPrompts, with_prompts


def test_the_columns_of_a_data_set_are_the_metadata() -> None:
    rows = Dataset.from_dict({"prompt": ["one", "two"], "answer": [1, 2]})
    prompts = with_prompts({"prompts": rows, "seed": 1})
    assert prompts["seed"] == 1
    assert prompts["prompts"].prompts == [
        Prompt("one", {"answer": 1}),
        Prompt("two", {"answer": 2}),
    ]
    evaluated = with_prompts({"prompts": rows, "eval_prompts": ["three"]})["prompts"]
    assert evaluated.held_out(5) == [Prompt("three", {})]
    assert len(evaluated) == 2


@pytest.mark.parametrize("given", ["shapes", {"path": "prompts.txt"}, InMemoryPrompts(["one"])])
def test_options_settings_and_sources_stay(given: object) -> None:
    assert with_prompts({"prompts": given}) == {"prompts": given}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "is empty"),
        (["one", " "], "prompts: row 1: `prompt` is empty, ' ': a prompt must be a text; fill it in$"),
        (
            [{"question": "one"}],
            "its keys are question.*rename_column",
        ),
        ([3], "row 0 is 3; it must be"),
    ],
)
def test_rows_without_a_text_are_an_error(rows: list[object], message: str) -> None:
    with pytest.raises(PromptError, match=message):
        with_prompts({"prompts": rows})
