"""Tokens as people can read them."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from rlfactory.inspection.names import token_name


class Words:
    """A tokenizer of one token."""

    eos_token_id = 7

    def __init__(self, text: str) -> None:
        self.text = text

    def decode(self, ids: list[int]) -> str:
        return self.text


@pytest.mark.parametrize(
    ("text", "name"),
    [(" great", "␣great"), ("\n", "\\n"), ("é", "é"), ("映", "\\u6620")],
)
def test_spaces_show_and_what_no_font_draws_is_a_number(text: str, name: str) -> None:
    assert token_name(Words(text), 3) == name


def test_the_end_and_half_letters_have_names(gpt2_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(gpt2_folder)
    assert token_name(tokenizer, tokenizer.eos_token_id) == "(end)"
    names = [token_name(tokenizer, i) for i in range(256)]
    assert all(names)
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(names)
    assert len({*names}) == 256
