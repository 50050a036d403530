"""Preference pairs from a file: what is read, what is refused, what is held out."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlfactory.prompts.base import PromptError
from rlfactory.tools.reward_model.training import Pair, read_pairs, split_pairs


def saved(folder: Path, *rows: dict[str, Any], name: str = "pairs.jsonl") -> Path:
    file = folder / name
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return file


ROW = {"prompt": "p", "chosen": " a", "rejected": " b"}


def test_the_chosen_one_is_the_reference_unless_there_is_one(tmp_path: Path) -> None:
    found = read_pairs(saved(tmp_path, ROW, {**ROW, "reference": " c", "more": 3}))
    assert found == [Pair("p", " a", " b", " a"), Pair("p", " a", " b", " c")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "p", "chosen": " a"}, "pair 2: `rejected` must be a text.*prompt, chosen"),
        ({**ROW, "chosen": None}, "pair 2: `chosen` must be a text, and it is None"),
        ({**ROW, "chosen": " b "}, "pair 2: `chosen` and `rejected` are equal.*remove the line"),
        ({**ROW, "reference": 3}, "pair 2: `reference` must be a text"),
        ({"chosen": " a", "rejected": " b"}, ":2: has no `prompt`"),
    ],
)
def test_a_row_that_is_no_pair_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(PromptError, match=message):
        read_pairs(saved(tmp_path, ROW, row))


def test_an_empty_or_missing_file_or_one_of_another_kind_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="empty"):
        read_pairs(saved(tmp_path))
    with pytest.raises(PromptError, match="cannot read"):
        read_pairs(tmp_path / "none.jsonl")
    with pytest.raises(PromptError, match=r"from \.jsonl, not from '\.csv'"):
        read_pairs(saved(tmp_path, ROW, name="pairs.csv"))


def test_all_pairs_of_a_prompt_are_on_one_side() -> None:
    pairs = [Pair(f"p{i % 50}", f" {i}", " b", " c") for i in range(100)]
    training, held_out = split_pairs(pairs, 0.1)
    assert (len(training), len(held_out)) == (90, 10)
    assert not {p.prompt for p in training} & {p.prompt for p in held_out}


@pytest.mark.parametrize("share", [0.1, 0.99])
def test_too_few_pairs_are_an_error(share: float) -> None:
    pairs = [Pair(f"p{i}", " a", " b", " a") for i in range(10)]
    with pytest.raises(PromptError, match="--held-out .* of 10 different prompts leaves"):
        split_pairs(pairs, share)
