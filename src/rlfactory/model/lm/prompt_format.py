"""Token ids of prompts and completions: of texts as they are, of conversations by a template."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from jinja2 import TemplateError

from rlfactory.prompts.ops.chat import (
    ROLES,
    THOUGHTS,
    ChatText,
    Message,
    thoughts_and_text,
    transcript,
)
from rlfactory.prompts.ops.pictured import PicturedText
from rlfactory.utils.errors import ModelError

TextRole = Literal["none", "user", "auto"]
PLAIN = (
    "{{ bos_token or '' }}{% for message in messages %}{{ message['role'] }}: "
    "{{ message['content'] }}{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
"""The template `plain`: each message after its role in words, for models that have none."""
PROBE = "rlfactory"
"""A text whose end shows in a rendered template."""
_MARK = r"[<\[][^<>\[\]]*(?:think|thought|reason)[^<>\[\]]*[>\]]"
EMPTY_THOUGHTS = re.compile(rf"{_MARK}\s*{_MARK}\s*", re.IGNORECASE)
"""Two marks about nothing, as Qwen3's template puts them before an answer without thoughts."""
ENDED_THOUGHTS = re.compile(f"{EMPTY_THOUGHTS.pattern}$", re.IGNORECASE)
THINKING = re.compile(r"<think>\s*$")
"""The end of a prompt in which thoughts have begun."""


class PromptFormat:
    """How a tokenizer's model is given prompts.

    Args:
        tokenizer: of the model; its `chat_template` is set to the template that is used.
        template: `auto`, the tokenizer's own; `plain`; `none`; or the path of a Jinja file.
        system_prompt: the system message of each conversation that has none of its own.
        text_role: whether a prompt that is a text is given as it is, or as a user's message; by
            `auto` as a message where there is a chat template.
        options: further variables of the template, as Qwen3's `enable_thinking`.
        begin: what stands before a prompt that is given as it is.

    Raises:
        ModelError: the template can't be read.

    Attributes:
        picture: what stands before the text of a prompt for its picture.
    """

    picture = ""

    def __init__(
        self,
        tokenizer: Any,
        *,
        template: str = "auto",
        system_prompt: str | None = None,
        text_role: TextRole = "none",
        options: Mapping[str, Any] | None = None,
        begin: str = "",
    ) -> None:
        self.tokenizer, self.begin = tokenizer, begin
        self.system_prompt = system_prompt
        self.options = dict(options or {})
        if template == "plain":
            tokenizer.chat_template = PLAIN
        elif template not in ("auto", "none"):
            try:
                tokenizer.chat_template = Path(template).expanduser().read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ModelError(
                    f"model.chat_template={template}: can't be read: {error}"
                ) from error
        self.has_template = template != "none" and tokenizer.chat_template is not None
        by_template = "user" if self.has_template else "none"
        self.text_role = by_template if text_role == "auto" else text_role

    def prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        """Token ids of each prompt; ModelError if it is empty, or no template can write it."""
        # the prompts of a group are equal; a tokenizer is fast on many texts at once
        known: dict[str, list[int]] = {}
        given = {prompt: self.messages(prompt) for prompt in dict.fromkeys(prompts)}
        conversations = {prompt: m for prompt, m in given.items() if m is not None}
        texts = [prompt for prompt, messages in given.items() if messages is None]
        if texts:
            ids = self.tokenizer([self.begin + self._text(text) for text in texts]).input_ids
            if [] in ids:
                raise ModelError("a prompt is empty; say more, or set model.begin_with_end=true")
            known.update(zip(texts, ids, strict=True))
        written = [self._written(m, getattr(p, "tools", ())) for p, m in conversations.items()]
        known.update(zip(conversations, self._ids(written), strict=True))
        return [known[prompt] for prompt in prompts]

    def completion_ids(
        self, prompts: Sequence[str], texts: Sequence[str], given: Sequence[list[int]] | None = None
    ) -> list[list[int]]:
        """The token ids of given completions, each with the token that ends it. `given` are those
        of the prompts, where they are known.

        They are those that follow the prompt's own in the text of both; where a token there has
        letters of both, the completion's alone, as sampling goes on after the prompt's tokens.
        ModelError where the template does not write what an answer holds.
        """
        rows, firsts = [], self.prompt_ids(prompts) if given is None else given
        for prompt, text, first in zip(prompts, texts, firsts, strict=True):
            start, reply, end = self._reply(prompt, text)
            special = self.messages(prompt) is None
            both = self.tokenizer(start + reply, add_special_tokens=special).input_ids
            follows = both[: len(first)] == first
            rows.append([*(both[len(first) :] if follows else self._ids([reply])[0]), end])
        return rows

    def answered(self, prompt: str, text: str, until: Literal["text", "end", "all"]) -> str:
        """A prompt and its completion as one text, for a tokenizer that adds its first token, until
        its last letter, the token that ends it, or all that a template writes after it.
        """
        messages = self.messages(prompt)
        if messages is not None and until == "all":
            answer = {"role": "assistant", "content": text}
            whole = self._written([*messages, answer], getattr(prompt, "tools", ()), done=True)
        else:
            start, reply, end = self._reply(prompt, text)
            last = "" if until == "text" else self.tokenizer.convert_ids_to_tokens(end)
            whole = start + reply + last
        adds_first = messages is not None and bool(self.tokenizer("").input_ids)
        return whole.removeprefix(self.tokenizer.bos_token or "") if adds_first else whole

    def _reply(self, prompt: str, text: str) -> tuple[str, str, int]:
        """A prompt as it is given, the completion as it follows it, and the token that ends it."""
        messages, tools = self.messages(prompt), getattr(prompt, "tools", ())
        if messages is None:
            return self.begin + self._text(prompt), str(text), int(self.tokenizer.eos_token_id)
        start = self._written(messages, tools)
        answer = dict(getattr(text, "message", {"role": "assistant", "content": str(text)}))
        thoughts, said = thoughts_and_text(answer)
        if messages[-1]["role"] == "assistant":
            begun = messages.pop()
            answer["content"] = begun.get("content", "") + answer.get("content", "")
        calls = [call["function"]["name"] for call in answer.get("tool_calls", ())]
        whole = self._written([*messages, answer], tools, done=True)
        parts = [part.strip() for part in (thoughts, said, *calls) if part.strip()]
        rest = whole.removeprefix(start) if whole.startswith(start) else ""
        if not thoughts and "</think>" not in text:
            # the model has no reason to write marks that the data have not
            rest = rest.removeprefix(found[0]) if (found := EMPTY_THOUGHTS.match(rest)) else rest
        if (end := _end_of(rest, parts)) is not None:
            tail, ends, _ = rest[end:].partition(self.turn_end)
            tail = tail if ends else tail.rstrip()
            # calls of tools may end with a token of their own
            other = "" if ends else next((t for t in self._special if tail.endswith(t)), "")
            last = self.tokenizer.convert_tokens_to_ids(other) if other else self.turn_end_id
            return start, rest[:end] + tail.removesuffix(other), int(last)
        is_lost = not THINKING.search(start) and not ENDED_THOUGHTS.search(start)
        if calls or (is_lost and any(answer.get(field) for field in THOUGHTS)):
            raise ModelError(
                f"model.chat_template: of the answer to {prompt[-40:]!r} the template writes no"
                f" {'tool calls' if calls else 'thoughts'} after the prompt; give them in"
                " `content`, or another template: model.chat_template=FILE"
            )
        # The template does not go on as its prompt ends. Where that has ended the thoughts, the
        # answer follows; where it has begun them, they are ended first.
        if ENDED_THOUGHTS.search(start):
            reply = said
        elif THINKING.search(start):
            gap = "" if start.endswith("\n") else "\n"
            reply = f"{gap}{thoughts}\n</think>\n\n{said}"
        else:
            reply = str(text)
        return start, reply, self.turn_end_id

    def messages(self, prompt: str) -> list[Message] | None:
        """The messages that a prompt is given as; None: it is given as it is."""
        if isinstance(prompt, ChatText):
            messages: list[Message] = [*prompt.messages]
        elif self.text_role == "user" and (content := self._text(prompt)):
            messages = [{"role": "user", "content": content}]
        else:
            return None
        if self.system_prompt is not None and messages[0]["role"] not in ("system", "developer"):
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        return messages

    def _text(self, prompt: str) -> str:
        return f"{self.picture if isinstance(prompt, PicturedText) else ''}{prompt!s}"

    def messages_of_transcript(self, prompt: str) -> list[Message] | None:
        """An example of a run's messages, given a prompt as its records have it, a transcript where
        it is a conversation; None if prompts are given as they are.
        """
        role, _, text = prompt.partition(": ")
        if not self.has_template or self.text_role == "user" or role not in ROLES:
            return self.messages(prompt)
        is_one = role == "user" and not any(f"\n{other}: " in text for other in ROLES)
        return self.messages(ChatText([{"role": "user", "content": text if is_one else "Hello"}]))

    @cached_property
    def turn_end(self) -> str:
        """The special token with which the template ends an answer; else the end of text."""
        end: str = self.tokenizer.eos_token
        if not self.has_template:
            return end
        turn = [{"role": "user", "content": PROBE}, {"role": "assistant", "content": PROBE}]
        try:
            _, _, after = self._render(turn, add_generation_prompt=False).rpartition(PROBE)
        except (TemplateError, ValueError):
            return end  # it wants other messages; a prompt that it can't write is an error
        return min((t for t in self._special if t in after), key=after.index, default=end)

    @cached_property
    def _special(self) -> list[str]:
        added = self.tokenizer.added_tokens_decoder.values()
        return [self.tokenizer.eos_token, *(token.content for token in added if token.special)]

    @property
    def turn_end_id(self) -> int:
        """The id of `turn_end`."""
        return int(self.tokenizer.convert_tokens_to_ids(self.turn_end))

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        return self.tokenizer([*texts], add_special_tokens=False).input_ids

    def _written(
        self, messages: Sequence[Message], tools: Sequence[Any] = (), done: bool = False
    ) -> str:
        """Messages as the template writes them; unless `done`, up to where the answer goes on."""
        if not self.has_template:
            raise ModelError(
                f"model.chat_template: the prompt {transcript(messages)[:40]!r} is a list of"
                " messages, and there is no chat template; type model.chat_template=plain, or the"
                " path of a Jinja template"
            )
        goes_on = not done and messages[-1]["role"] == "assistant"
        options = {
            "add_generation_prompt": not done and not goes_on,
            "continue_final_message": goes_on,
        }
        try:
            written = self._render(messages, tools=[*tools] or None, **options)
            ignores = bool(tools) and written == self._render(messages, **options)
        except (TemplateError, ValueError, TypeError) as error:
            remedy = " (model.system_prompt=null)" if self.system_prompt is not None else ""
            roles = ", ".join(message["role"] for message in messages)
            raise ModelError(
                f"model.chat_template: the template can't write messages of {roles}: {error}."
                f" Give others{remedy}, or another template: model.chat_template=plain"
            ) from error
        if (lost := "the tools" if ignores else None if done else _lost(written, messages)) is None:
            return written
        raise ModelError(
            f"model.chat_template: the template leaves out {lost} of the prompt"
            f" {transcript(messages)[:40]!r}; remove that from the data, or give a template that"
            " writes it: model.chat_template=FILE"
        )

    def _render(self, messages: Sequence[Message], **options: Any) -> str:
        return self.tokenizer.apply_chat_template(
            [*messages], tokenize=False, **self.options, **options
        )


def _end_of(text: str, parts: Sequence[str]) -> int | None:
    """Where the last of the parts of a text ends, which follow one another; None without one."""
    end = 0
    for part in parts:
        if (at := text.find(part, end)) < 0:
            return None
        end = at + len(part)
    return end or None


def _lost(written: str, messages: Sequence[Message]) -> str | None:
    """The text of messages that a template left out, thoughts of earlier answers apart, or None.

    White space does not count, and a text may be written as JSON.
    """
    squeezed = "".join(written.split())
    for message in messages:
        _, said = thoughts_and_text(message) if message["role"] == "assistant" else ("", "")
        said = said if message["role"] == "assistant" else message.get("content", "")
        forms = (said, json.dumps(said, ensure_ascii=False)[1:-1], json.dumps(said)[1:-1])
        calls = [call["function"]["name"] for call in message.get("tool_calls", ())]
        if not any("".join(form.split()) in squeezed for form in forms):
            return f"the {message['role']}'s message"
        if any(name not in written for name in calls):
            return "the tool calls"
    return None
