"""Prompts as conversations: texts that are told apart by their lists of messages. Torch-free."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

Message = Mapping[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool")
MESSAGES, COMPLETION, TOOLS = "messages", "completion", "tools"
"""The keys of a prompt's metadata that hold its messages, the answer that the data give, and the
tools that it may call."""


class ChatText(str):
    """A conversation up to the answer that is wanted, its `messages` and the `tools` that the
    assistant may call, as JSON schemas: as a string, a readable transcript.

    It equals another only with the same messages, and no plain string, so that groups and held-out
    prompts are those of the messages. A model's chat template makes token ids of the messages.
    """

    messages: tuple[Message, ...]
    tools: tuple[Any, ...]

    def __new__(cls, messages: Sequence[Message], tools: Sequence[Any] = ()) -> "ChatText":
        made = super().__new__(cls, transcript(messages))
        made.messages, made.tools = tuple(messages), tuple(tools)
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.messages, self.tools

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChatText) and self.identity == other.identity

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def identity(self) -> str:
        """A plain string that only this conversation has."""
        whole = [self.messages, self.tools] if self.tools else self.messages
        return json.dumps(whole, ensure_ascii=False, sort_keys=True, default=str)


class ChatAnswer(str):
    """An answer of the data whose `message` has more than a text: calls of tools, or thoughts."""

    message: Message

    def __new__(cls, message: Message) -> "ChatAnswer":
        calls = [
            json.dumps(call, ensure_ascii=False, default=str)
            for call in message.get("tool_calls", ())
        ]
        made = super().__new__(cls, "\n".join(filter(None, [*thoughts_and_text(message), *calls])))
        made.message = message
        return made

    def __getnewargs__(self) -> tuple[Message]:  # type: ignore[override]
        return (self.message,)


def transcript(messages: Sequence[Message]) -> str:
    """The messages as text, each after its role."""
    return "\n".join(f"{message['role']}: {message.get('content') or ''}" for message in messages)


THOUGHTS = ("reasoning_content", "thinking", "reasoning")
"""Fields of an assistant's message that hold its thoughts."""
THOUGHTS_END = "</think>"


def thoughts_and_text(message: Message) -> tuple[str, str]:
    """The thoughts of an assistant's message, of a field or before `</think>`, and what it says."""
    text = message.get("content") or ""
    for field in THOUGHTS:
        if isinstance(message.get(field), str) and message[field].strip():
            return message[field].strip(), text
    thoughts, end, said = text.partition(THOUGHTS_END)
    return (thoughts.removeprefix("<think>").strip(), said.lstrip()) if end else ("", text)


def answer_of(message: Message) -> str:
    """The answer that an assistant's message is; ValueError where it is not to be learned."""
    for field in ("weight", "train"):
        if message.get(field, 1) != 1:
            raise ValueError(
                f"the answer has {field}: {message[field]!r}, and the last answer is what is"
                " learned, with a weight of 1; remove the row"
            )
    own = {key: value for key, value in message.items() if key not in ("weight", "train")}
    if own.get("tool_calls") or any(own.get(field) for field in THOUGHTS):
        return ChatAnswer(own)
    return str(own.get("content", ""))


def before_answer(prompt: str) -> str:
    """The text that an answer follows: of a transcript up to the assistant's message."""
    if not isinstance(prompt, ChatText) or prompt.messages[-1]["role"] == "assistant":
        return prompt
    return f"{prompt}\nassistant: "


def conversation(value: object) -> list[dict[str, Any]]:
    """A list of messages, without keys that are null; ValueError where it is none."""
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
    for key in UNREAD:
        if key in message:
            raise ValueError(f"message {number} has `{key}`, which is not read; {UNREAD[key]}")
    if calls := message.get("tool_calls"):
        message["tool_calls"] = [_call(number, call) for call in calls]
    content = _text_of(message.get("content"))
    if content is not None:
        return {**message, "content": content}
    if "content" in message or not calls:
        shown = message.get("content")
        raise ValueError(f"message {number}: `content` must be a text; it is {shown!r:.60}")
    return message


UNREAD = {
    "function_call": "give it as `tool_calls`",
    "images": "pictures are for image models",
    "audio": "give its text as `content`",
}
"""Keys of a message that say something that no template writes."""


def _call(number: int, call: object) -> dict[str, Any]:
    """A call of a tool, whose arguments are an object, as templates write them."""
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(
            f"message {number}: `tool_calls` must be objects with a `function` that has a `name`"
            f" and `arguments`; one is {call!r:.60}"
        )
    arguments = _json_of(function.get("arguments", {}))
    own = call if isinstance(call, Mapping) and function is not call else {}
    rest = {key: value for key, value in own.items() if value is not None}
    return {"type": "function", **rest, "function": {**function, "arguments": arguments}}


def _json_of(value: object) -> Any:
    """The value that a text holds as JSON; anything else as it is."""
    with suppress(ValueError):
        return json.loads(value) if isinstance(value, str) else value
    return value


def tools_of(row: Mapping[str, Any]) -> list[Any]:
    """The tools of a row's column `tools`, a list of JSON schemas or such a list as a text;
    ValueError where it is something else.
    """
    tools = _json_of(row.get(TOOLS)) or []
    if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
        raise ValueError(f"its `tools` must be a list of JSON schemas; it is {tools!r:.60}")
    return tools


def _text_of(content: object) -> str | None:
    """A content as text, also where it is a list of parts that are texts; None if it is neither."""
    if isinstance(content, list) and content:
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        return "".join(map(str, parts)) if all(isinstance(p, str) for p in parts) else None
    return content if isinstance(content, str) else None


def read_prompt(row: Mapping[str, Any], key: str) -> tuple[str, dict[str, Any]]:
    """The prompt of a row of data, under `key`, and its metadata: the other columns. ValueError
    where it is neither a text nor a conversation.

    A list of messages becomes a `ChatText`, and the metadata have it under `messages`. An
    assistant's message at its end is the answer that the data give: it becomes the `completion`,
    where the row has none. Under the key `prompt` it stays, as the beginning of the answer.
    """
    metadata = dict(row)
    value = metadata.pop(key, None)
    if isinstance(value, str):
        if isinstance(tools := _json_of(row.get(TOOLS)), list) and tools_of({TOOLS: tools}):
            raise ValueError("has `tools`, which are for conversations: give a list of messages")
        return value, metadata
    messages = conversation(value)
    if key != "prompt" and messages[-1]["role"] == "assistant":
        metadata = {COMPLETION: answer_of(messages.pop()), **metadata}
    if not any(message["role"] in ("user", "tool") for message in messages):
        raise ValueError("must have a user's message before the answer")
    return ChatText(messages, tools_of(row)), {**metadata, MESSAGES: messages}


def as_prompt(value: str | Sequence[Message]) -> str:
    """A text as it is, or a list of messages as a `ChatText`; ValueError where it is neither."""
    return value if isinstance(value, str) else ChatText(conversation(value))


def reply_text(value: object) -> object:
    """The text of a completion that is a number or a list of one assistant's message; all else as
    it is. ValueError where the message can't be learned.
    """
    match value:
        case int() | float() if not isinstance(value, bool) and value == value:
            return str(value)
        case [{"role": "assistant"}]:
            return answer_of(conversation(value)[0])
    return value
