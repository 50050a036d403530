"""Conversations as prompts: readable, told apart by their messages, the same from every source."""

import copy
import json
import pickle
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.file import FilePrompts
from rlfactory.prompts.ops.chat import (
    ChatText,
    as_prompt,
    before_answer,
    conversation,
    read_prompt,
    reply_text,
)
from rlfactory.prompts.ops.in_memory import InMemoryPrompts
from rlfactory.prompts.ops.pictured import identity

ASKED: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2 + 2?"},
]
ANSWER = {"role": "assistant", "content": "4"}


def test_a_conversation_reads_as_a_transcript_and_is_told_apart_by_its_messages() -> None:
    text = ChatText(ASKED)
    assert str(text) == "system: Be brief.\nuser: 2 + 2?"
    assert before_answer(text) == text + "\nassistant: "
    assert text == ChatText([dict(m) for m in ASKED])
    assert text != str(text)
    joined = ChatText([{"role": "system", "content": "Be brief.\nuser: 2 + 2?"}])
    assert str(joined) == str(text)
    assert joined != text
    assert identity(joined) != identity(text)
    assert {text: 1}[pickle.loads(pickle.dumps(text))] == 1
    assert copy.deepcopy(text).messages == text.messages


def test_messages_may_have_times_as_data_sets_of_chats_do() -> None:
    texts = [ChatText([ASKED[1] | {"at": datetime(2026, 1, day)}]) for day in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_every_source_reads_the_same(tmp_path: Path) -> None:
    expected = Prompt(ChatText(ASKED), {"completion": "4", "n": 1, "messages": ASKED})
    row = {"messages": [*ASKED, ANSWER], "n": 1}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    assert FilePrompts(path=str(path)).prompts == [expected]
    assert InMemoryPrompts([row]).prompts == [expected]
    (bare,) = InMemoryPrompts([[*ASKED, ANSWER]]).prompts
    assert bare == Prompt(ChatText(ASKED), {"completion": "4", "messages": ASKED})
    (prompt,) = InMemoryPrompts([{"prompt": ASKED, "completion": [ANSWER]}]).prompts
    assert prompt.text == ChatText(ASKED)
    assert reply_text(prompt.metadata["completion"]) == "4"


def test_a_prompt_may_begin_its_answer() -> None:
    text, _ = read_prompt({"prompt": [*ASKED, ANSWER]}, "prompt")
    assert text == ChatText([*ASKED, ANSWER])
    assert before_answer(text) == text


def test_messages_as_libraries_write_them() -> None:
    parts = [{"type": "text", "text": "2 + "}, {"type": "text", "text": "2?"}]
    found = conversation([{"role": "user", "content": parts, "name": None}])
    assert found == [{"role": "user", "content": "2 + 2?"}]
    assert as_prompt("text") == "text"
    assert as_prompt(ASKED) == ChatText(ASKED)
    assert reply_text([ANSWER, ANSWER]) == [ANSWER, ANSWER]
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
    called = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "4"}]
    assert conversation(called) == called
    as_text = {"name": "add", "arguments": '{"a": 2}'}
    for given in ({**call, "function": as_text}, as_text):
        assert conversation([{**called[0], "tool_calls": [given]}]) == called[:1]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([], "prompts: row 0: `messages` is empty, []"),
        (
            [{"role": "user"}],
            "prompts: row 0: `messages` message 0: `content` must be a text; it is None",
        ),
        ({"messages": ["hi"]}, "row 0: `messages` message 0 must have `role` and `content`"),
        ({"prompt": [{"role": "user", "content": [{"type": "image"}]}]}, "must be a text"),
    ],
    ids=str,
)
def test_wrong_messages_are_named(row: Any, said: str) -> None:
    with pytest.raises(PromptError) as error:
        InMemoryPrompts([row])
    assert said in str(error.value)
