"""Rows of data as their publishers write them: ShareGPT's and Alpaca's, pairs without a prompt."""

import ast
import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from os.path import commonprefix
from typing import Any

from rlfactory.prompts.ops.chat import MESSAGES, TOOLS, read_prompt
from rlfactory.prompts.ops.data_rows import PICTURES

SPEAKERS = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "observation": "tool"}
"""Roles of ShareGPT's messages that have another name here."""
CONVERSATIONS = (MESSAGES, "conversations", "conversation")
"""Columns of whole conversations."""
PAIR = ("chosen", "rejected")
COMPLETIONS = (*PAIR, "completion", "text")
ALPACA = ("system", "instruction", "input", "output", "history")
QUESTIONS = ("question", "query", "problem", "input")
"""Columns of a prompt beside a pair, which is then no beginning that both have."""
PARTS = ("prompt", *CONVERSATIONS, TOOLS, *COMPLETIONS, *ALPACA)
"""Columns that a prompt and its completions are read from where no other column is named."""
IMAGES, PREFERENCE = ("jpg_0", "jpg_1"), "label_0"
"""Pick-a-Pic's columns of two images, and of 1 where the first is preferred, 0 where the other."""


BEGUN_WORD = re.compile(r"\S+$")
QUOTED_MESSAGES = re.compile(r"""\s*\[\s*\{\s*(['"])(role|from|content|value)\1\s*:""")


class NoPromptError(ValueError):
    """A row without a column of prompts."""


class EmptyCellError(ValueError):
    """A row whose prompt is empty; `column` is where it would be."""

    def __init__(self, column: str, value: object) -> None:
        self.column = column
        super().__init__(f"`{column}` is empty, {value!r:.40}: a prompt must be a text")


def with_nested(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the keys of its mappings too, as `reward_model.ground_truth` of verl's rows; and
    with the `chosen` and the `rejected` of two images, where one is preferred.
    """
    nested = {
        f"{name}.{key}": value
        for name, below in row.items()
        if isinstance(below, Mapping) and "bytes" not in below  # of an image
        for key, value in below.items()
    }
    preference = row.get(PREFERENCE) if {*IMAGES} <= row.keys() else None
    order = IMAGES if preference == 1 else IMAGES[::-1] if preference == 0 else ()
    pair = zip(PAIR, order, strict=False)
    return {**nested, **{name: row[column] for name, column in pair}, **row}


def pair_columns(names: Iterable[str]) -> tuple[str, ...]:
    """The columns that `with_nested` adds to rows of images with a preference."""
    return PAIR if {*IMAGES, PREFERENCE} <= {*names} else ()


def of_table(row: Mapping[str, Any], column: str) -> dict[str, Any]:
    """A row of a table with messages and tools as they were written, read from `column` too.

    Arrow gives all objects of a column the keys of each, and null where one has none: a template
    would write these as arguments of a call. pandas has arrays for lists, and NaN for None.
    """
    nested = {column.partition(".")[0], *PARTS}
    given = {k: None if is_null(value) else value for k, value in row.items()}
    return {k: _without_nulls(value) if k in nested else value for k, value in given.items()}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_nulls(below) for k, below in value.items() if below is not None}
    value = value.tolist() if hasattr(value, "tolist") else value
    return [*map(_without_nulls, value)] if isinstance(value, list | tuple) else value


def is_left_out(row: Mapping[str, Any], columns: Collection[str]) -> bool:
    """Whether a row has nothing in one of these columns, without which it is not wanted."""
    if not columns:
        return False
    is_bare_pair = {*PAIR} <= row.keys() and prompt_column(row) not in row
    wanted = [c for c in columns if c != "prompt" or not is_bare_pair]
    # which image is preferred is known without them, which are large
    unread = dict.fromkeys(IMAGES, "unread") if PREFERENCE in row else {}
    row = with_nested({**unread, **row})
    return any(is_missing(row.get(prompt_column(row, column))) for column in wanted)


UNPAIRED = (
    "has a completion with a `label`, true or false, and nothing here learns from unpaired labels:"
    " write a good and a bad completion of each prompt as `chosen` and `rejected` for algo=dpo, or"
    " keep the good ones, without `label`, for algo=sft"
)
"""What is wrong with rows of completions that are labelled one by one, after their place."""


def is_unpaired(row: Mapping[str, Any]) -> bool:
    """Whether a row is a completion with a label, as TRL's for KTO, and no pair."""
    return "completion" in row and isinstance(row.get("label"), bool) and "chosen" not in row


def is_missing(value: object) -> bool:
    """Whether a cell holds nothing: null, no number, white space, no message with words in it."""
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, list | tuple):
        asked = [m.get("content") for m in value if _has_role(m, "user")]
        return not value or (
            bool(asked) and all(isinstance(a, str) and not a.strip() for a in asked)
        )
    return is_null(value)


def is_null(value: object) -> bool:
    """Whether a cell has no value, as Python, NumPy and pandas say it."""
    is_nan = isinstance(value, float) and value != value
    # pandas.NA equals nothing; NaT is its date
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _has_role(message: object, role: str) -> bool:
    return isinstance(message, Mapping) and message.get("role") == role


def prompt_column(row: Mapping[str, Any], column: str = "prompt") -> str:
    """The column of a row's prompt: the one that is named, or else what stands for it.

    Without a `prompt`: Alpaca's `instruction`, also beside a pair; pairs alone (`chosen`),
    conversations, or `text` where there is nothing else.
    """
    if column != "prompt" or not is_missing(row.get(column)):
        return column
    if "prompt" not in row and {*PAIR} <= row.keys():
        are_answers = "instruction" in row and isinstance(row["chosen"], str)
        return "instruction" if are_answers else column
    for name in CONVERSATIONS:
        if not is_missing(row.get(name)):
            return name
    if "prompt" in row:
        return column
    if {"instruction", "output"} <= row.keys():
        return "instruction"
    names = (name for name in CONVERSATIONS if name in row)
    return "text" if {*row} == {"text"} else next(names, column)


def same_form(row: Mapping[str, Any], column: str, first: str | None) -> str:
    """The column of a row's prompt, given that of the first row; ValueError where either is
    `text`, or Alpaca's `instruction`, and the other is not: one of them is no prompt.
    """
    used = prompt_column(row, column)
    if first not in (None, used) and {used, first} & {"text", "instruction"}:
        raise ValueError(f"has no `{first}`, as rows before it; its keys are {', '.join(row)}")
    return used


def read_row(row: Mapping[str, Any], column: str = "prompt") -> tuple[str, dict[str, Any]]:
    """The prompt of a row and its metadata, the other columns; see `read_prompt`.

    ValueError where there is none; the message goes on after the place of the row.
    """
    given = with_nested(row)
    for name in {column, *PARTS} & given.keys():
        given[name] = _as_messages(_unquoted(name, given[name]))
    used = prompt_column(given, column)
    if used == "prompt":
        given |= _without_common_beginning(given)
    if used in ("instruction", *CONVERSATIONS) and used != column:
        given, used = _converted(given, used)
    if is_missing(given.get(used)):
        if used in given:
            raise EmptyCellError(used, given[used])
        raise NoPromptError(
            f"has no `{used}` and no `{MESSAGES}`; its keys are {', '.join(given) or 'none'}"
        )
    try:
        text, metadata = read_prompt(given, used)
        str(getattr(text, "identity", text)).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"`{used}` has half of a surrogate pair, which is no character") from error
    except ValueError as error:
        raise ValueError(f"`{used}` {error}") from error
    return text, metadata


def _unquoted(name: str, value: Any) -> Any:
    """Messages that a table holds as a text, JSON or Python's; anything else as it is."""
    if not isinstance(value, str) or not QUOTED_MESSAGES.match(value):
        return value
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError):
            return read(value)
    raise ValueError(f"`{name}` is a list of messages as a text, which is no JSON: {value!r:.60}")


def _as_messages(value: Any) -> Any:
    """Messages with `role` and `content` where they have ShareGPT's `from` and `value`."""
    if not isinstance(value, list | tuple):
        return value
    if not all(isinstance(m, Mapping) and {"from", "value"} <= m.keys() for m in value):
        return value
    return [
        {"role": SPEAKERS.get(m["from"], m["from"]), "content": m["value"]}
        | {key: other for key, other in m.items() if key not in ("from", "value")}
        for m in value
    ]


def _converted(row: dict[str, Any], column: str) -> tuple[dict[str, Any], str]:
    """A conversation under `messages`, after the `system` message of its row; or Alpaca's row, with
    the instruction and, after a blank line, the input as prompt, and the output as completion.
    """
    system = row.get("system")
    if column in CONVERSATIONS:
        messages = row.pop(column)
        if isinstance(system, str) and not is_missing(system) and isinstance(messages, list):
            messages = [{"role": "system", "content": row.pop("system")}, *messages]
        return {**row, MESSAGES: messages}, MESSAGES
    if row.get("history"):
        raise ValueError("has a `history`, which is left out by no rule; write it as `messages`")
    parts = [row.pop("instruction"), row.pop("input", None)]
    text = "\n\n".join(str(part) for part in parts if not is_missing(part))
    prompt: Any = text
    if isinstance(system, str) and not is_missing(system):
        prompt = [{"role": "system", "content": row.pop("system")}]
        prompt.append({"role": "user", "content": text})
    learned = {"completion": row.pop("output")} if "output" in row else {}
    return {"prompt": prompt, **learned, **row}, "prompt"


def _without_common_beginning(row: Mapping[str, Any]) -> dict[str, Any]:
    """The prompt of a pair whose completions repeat it, and the completions after it.

    It is the longest common beginning, of messages or of whole words (TRL's is of characters, and
    ends within a word whose letters both begin with), without the space before the completions. A
    `prompt` beside whole conversations is replaced.
    """
    chosen, rejected = row.get("chosen"), row.get("rejected")
    if isinstance(chosen, list) and isinstance(rejected, list):
        if not any(_has_role(message, "user") for message in chosen):
            return {}
        pairs = [*zip(chosen, rejected, strict=False)]
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
        if "assistant" not in {m["role"] for m in (*chosen[at:], *rejected[at:]) if "role" in m}:
            at = len(pairs) - 1  # equal ones, which the algorithm refuses
        if at == 0:
            raise ValueError(
                "has `chosen` and `rejected` of several turns that begin differently; each is one"
                " answer, or the whole conversation"
            )
    elif "prompt" not in row and isinstance(chosen, str) and isinstance(rejected, str):
        at = len(commonprefix([chosen, rejected]))
        word = len(BEGUN_WORD.sub("", chosen[:at]))
        at = word if chosen[:word].strip() else at
        at -= chosen[:at].endswith(" ")
        if not chosen[:at].strip() or chosen.lower().endswith(PICTURES):
            raise ValueError(
                "has no `prompt`, and `chosen` and `rejected` begin differently; add a `prompt`, or"
                " name its column: prompts.column=NAME"
            )
        apart = [n for n in QUESTIONS if isinstance(row.get(n), str) and row[n] not in chosen[:at]]
        if apart:
            raise ValueError(
                f"has no `prompt`, and a `{apart[0]}` that `chosen` and `rejected` do not begin"
                f" with; rename it, or type prompts.column={apart[0]}"
            )
    else:
        return {}
    return {"prompt": chosen[:at], "chosen": chosen[at:], "rejected": rejected[at:]}
