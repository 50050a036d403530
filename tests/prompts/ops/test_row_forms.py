"""Rows of data as their publishers write them."""

from typing import Any

import pytest

from rlfactory.prompts.ops.chat import ChatText, reply_text
from rlfactory.prompts.ops.row_forms import is_left_out, is_missing, read_row, same_form

ASKED, GOOD, BAD = (
    {"role": role, "content": text}
    for role, text in (("user", "Sky?"), ("assistant", "Blue."), ("assistant", "Green."))
)


@pytest.mark.parametrize(
    "value",
    [None, "", " \n", float("nan"), [], [{"role": "user", "content": " "}]],
    ids=repr,
)
def test_cells_that_hold_nothing(value: object) -> None:
    assert is_missing(value)


@pytest.mark.parametrize("value", ["a", 0, 0.0, False, [ASKED], [{"role": "user"}], {}], ids=repr)
def test_cells_that_hold_something(value: object) -> None:
    assert not is_missing(value)


@pytest.mark.parametrize(
    ("row", "prompt", "completions"),
    [
        # the examples of TRL's documentation of its data set formats
        (
            {"chosen": "The sky is blue.", "rejected": "The sky is green."},
            "The sky is",
            (" blue.", " green."),
        ),
        ({"chosen": "1+1=2", "rejected": "1+1=3"}, "1+1=", ("2", "3")),
        (
            {"chosen": "Assistant: I think so", "rejected": "Assistant: It can't be"},
            "Assistant:",
            (" I think so", " It can't be"),
        ),
        (
            {"chosen": "Assistant: yes", "rejected": "Assistant: yes, sure"},
            "Assistant:",
            (" yes", " yes, sure"),
        ),
        (
            {"prompt": "Sky?", "chosen": "Sky? Blue.", "rejected": "Sky? Green."},
            "Sky?",
            ("Sky? Blue.", "Sky? Green."),
        ),
        (
            {"chosen": [ASKED, GOOD], "rejected": [ASKED, BAD]},
            ChatText([ASKED]),
            ("Blue.", "Green."),
        ),
        (
            {"prompt": "Sky?", "chosen": [ASKED, GOOD], "rejected": [ASKED, BAD]},
            ChatText([ASKED]),
            ("Blue.", "Green."),
        ),
        (
            {"prompt": [ASKED], "chosen": [GOOD], "rejected": [BAD]},
            ChatText([ASKED]),
            ("Blue.", "Green."),
        ),
    ],
)
def test_pairs(row: dict[str, Any], prompt: str, completions: tuple[str, str]) -> None:
    text, metadata = read_row(row)
    assert text == prompt
    assert (reply_text(metadata["chosen"]), reply_text(metadata["rejected"])) == completions


def test_sharegpt_is_a_conversation() -> None:
    turns = [{"from": "human", "value": "Sky?"}, {"from": "gpt", "value": "Blue."}]
    expected = (ChatText([ASKED]), {"completion": "Blue.", "messages": [ASKED], "id": 1})
    assert read_row({"id": 1, "conversations": turns}) == expected
    assert read_row({"id": 1, "conversations": turns}, "conversations") == expected
    assert read_row({"id": 1, "messages": turns}) == expected
    text, _ = read_row({"system": "Be brief.", "conversations": turns})
    assert text == ChatText([{"role": "system", "content": "Be brief."}, ASKED])


def test_alpaca_is_a_prompt_and_a_completion() -> None:
    row = {"instruction": "Translate.", "input": "ciel", "output": "sky"}
    assert read_row(row) == ("Translate.\n\nciel", {"completion": "sky"})
    assert read_row({**row, "input": ""})[0] == "Translate."
    text, _ = read_row({**row, "input": None, "system": "Be brief."})
    assert isinstance(text, ChatText)
    assert [message["role"] for message in text.messages] == ["system", "user"]


def test_an_instruction_beside_a_pair_is_its_prompt() -> None:
    """Their common beginning is the answers', unless they are whole conversations."""
    pair = {"chosen": "It is blue", "rejected": "It is green"}
    assert read_row({"instruction": "Sky?", "input": "", **pair}) == ("Sky?", pair)
    told, metadata = read_row({"system": "S", "instruction": "Sky?", "input": "Now.", **pair})
    assert str(told) == "system: S\nuser: Sky?\n\nNow."
    assert {name: metadata[name] for name in pair} == pair
    assert is_left_out({"instruction": " ", **pair}, ["prompt"])
    whole = {"chosen": [ASKED, ANSWERED], "rejected": [ASKED, {**ANSWERED, "content": "c"}]}
    assert str(read_row({"instruction": "in other words", **whole})[0]) == "user: Sky?"
    asked = {"question": "Sky?", "chosen": "Sky? Blue", "rejected": "Sky? Green"}
    assert read_row(asked)[0] == "Sky?"


def test_a_text_alone_is_the_prompt() -> None:
    assert read_row({"text": "a cat"}) == ("a cat", {})


ANSWERED = {"role": "assistant", "content": "b"}
TURNS = {"chosen": [ANSWERED, ASKED, ANSWERED], "rejected": [{**ANSWERED, "content": "c"}]}


@pytest.mark.parametrize(
    ("row", "column", "said"),
    [
        ({"text": "a cat", "label": 1}, "prompt", "has no `prompt` and no `messages`; its keys"),
        ({"chosen": "a", "rejected": "b"}, "prompt", "begin differently"),
        ({"chosen": "a/1.png", "rejected": "a/2.png"}, "prompt", "begin differently"),
        (
            {"question": "Sky?", "chosen": "It is blue", "rejected": "It is green"},
            "prompt",
            "a `question` that .* do not begin with; rename it, or type prompts.column=question",
        ),
        ({"prompt": [ASKED], **TURNS}, "prompt", "of several turns that begin differently"),
        ({"prompt": ""}, "prompt", "`prompt` is empty"),
        ({"messages": []}, "prompt", "`messages` is empty"),
        ({"q": None, "prompt": "a"}, "q", "`q` is empty"),
        ({"prompt": "\ud800"}, "prompt", "half of a surrogate pair"),
        ({"prompt": 3}, "prompt", "must be a text or a list of messages; it is 3"),
        ({"instruction": "a", "output": "b", "history": [["c", "d"]]}, "prompt", "`history`"),
    ],
)
def test_rows_without_a_prompt(row: dict[str, Any], column: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_row(row, column)


def test_rows_that_are_left_out() -> None:
    assert is_left_out({"prompt": None, "answer": 1}, ["prompt"])
    assert is_left_out({"answer": 1}, ["prompt"])
    assert is_left_out({"prompt": "a"}, ["prompt", "answer"])
    assert not is_left_out({"messages": [ASKED]}, ["prompt"])
    assert not is_left_out({"chosen": "a b", "rejected": "a c"}, ["prompt"])
    assert is_left_out({"chosen": "a b", "rejected": ""}, ["prompt", "rejected"])


def test_rows_of_two_forms_are_refused() -> None:
    assert same_form({"messages": [ASKED]}, "prompt", "prompt") == "messages"
    with pytest.raises(ValueError, match="has no `prompt`, as rows before it"):
        same_form({"text": "a"}, "prompt", "prompt")
