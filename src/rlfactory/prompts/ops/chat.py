"""Prompts as conversations: texts that are told apart by their lists of messages. Torch-free."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool")
MESSAGES, COMPLETION = "messages", "completion"
"""The keys of a prompt's metadata that hold its messages, and the answer that the data give."""


class ChatText(str):
    """A conversation up to the answer that is wanted, as a string that is a readable transcript.

    It equals another only with the same messages, and no plain string, so that groups and held-out
    prompts are those of the messages. A model's chat template makes token ids of the messages.

    Attributes:
        messages: the messages, each with `role` and `content`.
    """

    messages: tuple[Message, ...]

    def __new__(cls, messages: Sequence[Message]) -> "ChatText":
        made = super().__new__(cls, transcript(messages))
        made.messages = tuple(messages)
        return made

    def __getnewargs__(self) -> tuple[tuple[Message, ...]]:  # type: ignore[override]
        return (self.messages,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChatText) and self.messages == other.messages

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def identity(self) -> str:
        """A plain string that only this conversation has."""
        return json.dumps(self.messages, ensure_ascii=False, sort_keys=True)


def transcript(messages: Sequence[Message]) -> str:
    """The messages as text, each after its role."""
    return "\n".join(f"{message['role']}: {message.get('content') or ''}" for message in messages)


def before_answer(prompt: str) -> str:
    """The text that an answer follows: of a transcript up to the assistant's message."""
    if not isinstance(prompt, ChatText) or prompt.messages[-1]["role"] == "assistant":
        return prompt
    return f"{prompt}\nassistant: "


def conversation(value: object) -> list[dict[str, Any]]:
    """A list of messages, without keys that are null.

    Raises:
        ValueError: it is none; the message says what is wrong with which message.
    """
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"must be a text or a list of messages; it is {value!r:.60}")
    return [_message(number, message) for number, message in enumerate(value)]


def _message(number: int, given: object) -> dict[str, Any]:
    if not isinstance(given, Mapping) or "role" not in given:
        raise ValueError(
            f"message {number} must have `role` and `content`, as"
            f' {{"role": "user", "content": "Hello"}}; it is {given!r:.60}'
        )
    message = {key: value for key, value in given.items() if value is not None}
    if message["role"] not in ROLES:
        raise ValueError(
            f"message {number} has the role {message['role']!r}; allowed are {', '.join(ROLES)}"
        )
    content = _text_of(message.get("content"))
    if content is not None:
        return {**message, "content": content}
    if "content" in message or "tool_calls" not in message:
        shown = message.get("content")
        raise ValueError(f"message {number}: `content` must be a text; it is {shown!r:.60}")
    return message


def _text_of(content: object) -> str | None:
    """A content as text, also where it is a list of parts that are texts; None if it is neither."""
    if isinstance(content, list) and content:
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        return "".join(map(str, parts)) if all(isinstance(p, str) for p in parts) else None
    return content if isinstance(content, str) else None


def read_prompt(row: Mapping[str, Any], key: str) -> tuple[str, dict[str, Any]]:
    """The prompt of a row of data, under `key`, and its metadata: the other columns.

    A list of messages becomes a `ChatText`, and the metadata have it under `messages`. An
    assistant's message at its end is the answer that the data give: it becomes the `completion`,
    where the row has none. Under the key `prompt` it stays, as the beginning of the answer.

    Raises:
        ValueError: what is there is neither a text nor a conversation.
    """
    metadata = dict(row)
    value = metadata.pop(key, None)
    if isinstance(value, str):
        return value, metadata
    messages = conversation(value)
    if key != "prompt" and messages[-1]["role"] == "assistant":
        metadata = {COMPLETION: messages.pop().get("content", ""), **metadata}
    if not any(message["role"] in ("user", "tool") for message in messages):
        raise ValueError("must have a user's message before the answer")
    return ChatText(messages), {**metadata, MESSAGES: messages}


def as_prompt(value: str | Sequence[Message]) -> str:
    """A text as it is, or a list of messages as a `ChatText`; ValueError where it is neither."""
    return value if isinstance(value, str) else ChatText(conversation(value))


def reply_text(value: object) -> object:
    """The text of a completion that is a number or a list of one assistant's message; all else as
    it is.
    """
    match value:
        case int() | float() if not isinstance(value, bool) and value == value:
            return str(value)
        case [{"role": "assistant", "content": str(text)}]:
            return text
    return value
