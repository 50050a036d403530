"""Prompts that a Python caller hands over."""

from itertools import repeat
from typing import Any

import pytest
from datasets import Dataset, DatasetDict

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops import in_memory
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


def test_a_data_set_of_torch_is_read_by_its_indices() -> None:
    class Questions:
        """Without an iterator, and without an end by IndexError."""

        def __len__(self) -> int:
            return 2

        def __getitem__(self, number: int) -> dict[str, str]:
            return {"prompt": f"question {number}"}

    given: Any = Questions()
    assert [prompt.text for prompt in InMemoryPrompts(given).prompts] == [
        "question 0",
        "question 1",
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "is empty"),
        (
            ["one", " "],
            "prompts: row 1: `prompt` is empty, ' ': a prompt must be a text; fill it in$",
        ),
        ([{"question": "one"}], "its keys are question$"),
        ([3], "row 0 is 3; it must be"),
    ],
)
def test_rows_without_a_text_are_an_error(rows: list[object], message: str) -> None:
    with pytest.raises(PromptError, match=message):
        with_prompts({"prompts": rows})


def test_the_renaming_of_a_column_works_when_typed() -> None:
    import pandas as pd

    frame = pd.DataFrame({"question": ["one"]})
    for data in (frame, Dataset.from_pandas(frame)):
        with pytest.raises(PromptError, match="its keys are question; type data") as caught:
            with_prompts({"prompts": data})
        typed = str(caught.value).rpartition("type ")[2].replace("...", "question")
        renamed = eval(typed, {"data": data})
        assert with_prompts({"prompts": renamed})["prompts"].texts() == ["one"]


def test_other_containers() -> None:
    import numpy as np
    import pandas as pd

    frame = pd.DataFrame({"prompt": ["one", "two"], "answer": [1, 2]}, index=[7, 9])
    expected = [Prompt("one", {"answer": 1}), Prompt("two", {"answer": 2})]
    columns = {"prompt": ["one", "two"], "answer": [1, 2]}
    rows = Dataset.from_dict(columns)
    generated = (row for row in rows)
    for given in (frame, columns, rows.to_iterable_dataset(), generated, rows.data.table):
        assert list(with_prompts({"prompts": given})["prompts"].prompts) == expected
    texts = with_prompts({"prompts": np.array(["one", "two"])})["prompts"].texts()
    assert texts == ["one", "two"]
    assert {type(text) for text in texts} == {str}
    assert with_prompts({"prompts": pd.Series(["one"])})["prompts"].texts() == ["one"]
    embedded = with_prompts({"prompts": [{"prompt": "one", "at": np.ones(2)}]})["prompts"]
    assert embedded.prompts[0].metadata == {"at": [1.0, 1.0]}


def test_an_empty_cell_of_a_data_frame_is_none_as_in_a_data_set() -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {
            "prompt": ["one", "two"],
            "answer": [1.5, None],
            "hint": ["a", float("nan")],
            "count": pd.array([3, None], dtype="Int64"),
            "day": [pd.Timestamp("2024-05-01"), None],
        }
    )
    for given in (frame, Dataset.from_pandas(frame)):
        first, second = with_prompts({"prompts": given})["prompts"].prompts
        assert first.metadata["answer"] == 1.5
        assert second.metadata == dict.fromkeys(("answer", "hint", "count", "day"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (DatasetDict(train=Dataset.from_dict({"prompt": ["a"]})), r"prompts=data\['train'\]"),
        ({"one", "two"}, "is a set"),
        (3, "is a int"),
        ([{1: "one"}], "mapping whose keys are texts"),
        ([{"prompt": None}], "row 0: `prompt` is empty, None.*fill it in$"),
        (repeat("on and on"), "does it end"),
    ],
)
def test_containers_that_are_none(
    rows: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_memory, "MOST", 100)
    with pytest.raises(PromptError, match=message):
        with_prompts({"prompts": rows})
    assert len(with_prompts({"prompts": ["one"] * 101})["prompts"].prompts) == 101
    with pytest.raises(PromptError, match="eval_prompts: is empty"):
        with_prompts({"prompts": ["one"], "eval_prompts": []})
