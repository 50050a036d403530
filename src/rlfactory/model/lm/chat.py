"""Token ids of prompts and completions: of texts as they are, of conversations by a template."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from jinja2 import TemplateError

from rlfactory.prompts.ops.chat import ROLES, ChatText, Message, transcript
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
    """

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
            tokenizer.chat_template = _read_template(template)
        self.has_template = template != "none" and tokenizer.chat_template is not None
        by_template = "user" if self.has_template else "none"
        self.text_role = by_template if text_role == "auto" else text_role

    def prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        """The token ids of each prompt.

        Raises:
            ModelError: a prompt is empty, or a conversation, which the template can't write.
        """
        # the prompts of a group are equal; a tokenizer is fast on many texts at once
        known: dict[str, list[int]] = {}
        given = {prompt: self.messages(prompt) for prompt in dict.fromkeys(prompts)}
        conversations = {prompt: m for prompt, m in given.items() if m is not None}
        texts = [prompt for prompt, messages in given.items() if messages is None]
        if not self.begin and "" in texts:
            raise ModelError("a prompt is empty; say more, or set model.begin_with_end=true")
        if texts:
            ids = self.tokenizer([self.begin + text for text in texts]).input_ids
            known.update(zip(texts, ids, strict=True))
        written = [self._written(messages) for messages in conversations.values()]
        known.update(zip(conversations, self._ids(written), strict=True))
        return [known[prompt] for prompt in prompts]

    def completion_ids(self, prompts: Sequence[str], texts: Sequence[str]) -> list[list[int]]:
        """The token ids of given completions, each with the token that ends it."""
        pairs = [self._reply(p, text) for p, text in zip(prompts, texts, strict=True)]
        ids = self._ids([reply for reply, _ in pairs])
        return [[*row, end] for row, (_, end) in zip(ids, pairs, strict=True)]

    def _reply(self, prompt: str, text: str) -> tuple[str, int]:
        """A completion as it follows its prompt, and the token that ends it."""
        messages = self.messages(prompt)
        if messages is None:
            return text, int(self.tokenizer.eos_token_id)
        # As the template writes the answer after the prompt. Where it does not go on as its prompt
        # ends (some templates leave out the thoughts of an answer), the text itself follows.
        start, answer = self._written(messages), {"role": "assistant", "content": text}
        if messages[-1]["role"] == "assistant":
            begun = messages.pop()
            answer = {**begun, "content": begun.get("content", "") + text}
        whole = self._written([*messages, answer], done=True)
        reply = whole.removeprefix(start) if whole.startswith(start) else text
        return reply.rpartition(self.turn_end)[0] or reply, self.turn_end_id

    def messages(self, prompt: str) -> list[Message] | None:
        """The messages that a prompt is given as; None: it is given as it is."""
        if isinstance(prompt, ChatText):
            messages: list[Message] = [*prompt.messages]
        elif self.text_role == "user" and prompt:
            messages = [{"role": "user", "content": str(prompt)}]
        else:
            return None
        if self.system_prompt is not None and messages[0]["role"] not in ("system", "developer"):
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        return messages

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
        except (
            TemplateError,
            ValueError,
        ):  # it wants other messages; a prompt that it can't write is an error
            return end
        added = self.tokenizer.added_tokens_decoder.values()
        special = [end, *(token.content for token in added if token.special)]
        return min((t for t in special if t in after), key=after.index, default=end)

    @property
    def turn_end_id(self) -> int:
        """The id of `turn_end`."""
        return int(self.tokenizer.convert_tokens_to_ids(self.turn_end))

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        ids: list[list[int]] = self.tokenizer([*texts], add_special_tokens=False).input_ids
        return ids

    def _written(self, messages: Sequence[Message], done: bool = False) -> str:
        """Messages as the template writes them; unless `done`, up to where the answer goes on."""
        if not self.has_template:
            raise ModelError(
                f"model.chat_template: the prompt {transcript(messages)[:40]!r} is a list of"
                " messages, and there is no chat template; type model.chat_template=plain, or the"
                " path of a Jinja template"
            )
        goes_on = not done and messages[-1]["role"] == "assistant"
        try:
            return self._render(
                messages,
                add_generation_prompt=not done and not goes_on,
                continue_final_message=goes_on,
            )
        except (TemplateError, ValueError) as error:
            remedy = " (model.system_prompt=null)" if self.system_prompt is not None else ""
            roles = ", ".join(message["role"] for message in messages)
            raise ModelError(
                f"model.chat_template: the template can't write messages of {roles}: {error}."
                f" Give others{remedy}, or another template: model.chat_template=plain"
            ) from error

    def _render(self, messages: Sequence[Message], **options: bool) -> str:
        text: str = self.tokenizer.apply_chat_template(
            [*messages], tokenize=False, **self.options, **options
        )
        return text


def _read_template(path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"model.chat_template={path}: can't be read: {error}") from error
