"""Rules on conversations, tokens and stop texts: there is a template, and room for the answer."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlfactory.config.checks.base import Config, Traits, is_algorithm_mismatched
from rlfactory.config.checks.prompt_files import known_rows
from rlfactory.config.problems import Problem
from rlfactory.config.prompt_data import CHECKED_LINES, nearest_file
from rlfactory.model.pipelines.local_models import folder_of, read_json
from rlfactory.prompts.ops.chat import ChatText
from rlfactory.utils.text import typed_text

TOKENIZER = "tokenizer.json"
OPTIONS = ("auto", "plain", "none")
"""What `model.chat_template` may be beside a file."""


def require_template(config: Config, traits: Traits) -> Iterator[Problem]:
    """There is a chat template for messages, and there are messages for a system prompt."""
    model, are_messages = config["model"], _are_conversations(config, traits)
    template, key = model.get("chat_template"), "model.chat_template"
    if template is None:  # a model of images
        if are_messages:
            message = "are lists of messages, which are for language models; give each a text"
            yield Problem("prompts", message, "model=gpt2")
    elif template not in OPTIONS:
        if not os.path.isfile(path := Path(template).expanduser()):
            message = f"there is no file {template}; allowed are a Jinja file, {', '.join(OPTIONS)}"
            yield Problem(key, message, f"{key}={nearest_file(path) or 'auto'}")
    elif template != "plain" and (are_messages or model.get("text_role") == "user"):
        has_own = _has_template(config)
        is_user = model.get("text_role") == "user"
        wants = "model.text_role=user" if is_user else "prompts are lists of messages"
        if template == "none":
            fix = f"{key}=plain" if has_own is False else f"{key}=auto"
            yield Problem(key, f"is none, and {wants}", fix)
        elif has_own is False:
            message = f"is auto, and {model['path']} has no chat template; {wants}"
            yield Problem(key, message, f"{key}=plain")
    if model.get("system_prompt") is not None and not are_user_messages(config):
        has_texts = traits["prompts"].get("metadata") is not None
        if not are_messages and (has_texts or known_rows(config, traits) is not None):
            message = "is a message of conversations, and these prompts are texts"
            yield Problem("model.system_prompt", message, "model.text_role=user")


AS_TEXTS = "model.text_role=none"
"""What to type for prompts that are texts, and no user's messages."""


def require_answers_of_conversations(config: Config, traits: Traits) -> Iterator[Problem]:
    """Supervised learning takes answers of conversations, not conversations as one text."""
    algo = config["algo"]
    if traits["algo"].get("samples_from") != "data" or is_algorithm_mismatched(traits):
        return
    are_conversations = _are_conversations(config, traits)
    if not are_conversations and not are_user_messages(config):
        return
    for key, value in (("column", None), ("train_on", "text")):
        if key in algo and algo[key] == value:
            message = "is for texts, and of a conversation the last answer is learned"
            fix = f"algo.{key}=completion"
            texts = None if are_conversations else (f"algo.{key}={value or 'null'}", AS_TEXTS)
            yield Problem(f"algo.{key}", message, fix, texts)


def require_room(config: Config, traits: Traits) -> Iterator[Problem]:
    """A response leaves room for a prompt in the model's context, and no text of the first rows is
    longer than that, where that is an error.

    What a template or a begin of text adds is not counted: the run counts it.
    """
    model, algo, head = config["model"], config["algo"], known_rows(config, traits)
    folder = folder_of(model.get("path")) if traits["model"].get("media") == "texts" else None
    own = {} if folder is None else read_json(folder / "config.json")
    context = own.get("max_position_embeddings", own.get("n_positions"))
    length = config["dynamics"].get("length")
    if folder is None or not isinstance(context, int) or not isinstance(length, int):
        return
    if length >= context:
        message = f"is {length}, and prompt and response have at most {context} tokens together"
        yield Problem("dynamics.length", message, f"dynamics.length={max(1, context // 2)}")
        return
    if algo.get("column", "") is None or algo.get("train_on") == "text":
        return  # prompts are not read by themselves
    has_tokenizer = os.path.isfile(folder / TOKENIZER)
    if head is None or model.get("long_prompts") != "refuse" or not has_tokenizer:
        return
    length = 1 if traits["algo"].get("samples_from") == "data" else length
    room = min(context - length, model.get("max_prompt_length") or context)
    prompts = [text for text in head.texts[:CHECKED_LINES] if type(text) is str]
    # a token has a byte at least
    long = [text for text in prompts if len(text.encode()) > room]
    counts = [len(ids) for ids in _token_ids(folder, long)] if long else [0]
    if (most := max(counts)) > room:
        message = (
            f"is refuse, and {long[counts.index(most)][:40]!r}... has {most} tokens, where {length}"
            f" for what follows leave {max(0, room)} for a prompt; allowed are drop and cut"
        )
        yield Problem("model.long_prompts", message, "model.long_prompts=drop")


def _token_ids(folder: Path, texts: Sequence[str]) -> list[list[int]]:
    from tokenizers import Tokenizer  # milliseconds, which other plans need not wait

    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return [found.ids for found in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def template_notes(config: Config, traits: Traits) -> Iterator[str]:
    """A note where a model has a chat template, and its prompts are texts, given without it."""
    model = config.get("model", {})
    if (model.get("chat_template"), model.get("text_role")) != ("auto", "none"):
        return
    are_texts = known_rows(config, traits) and not _are_conversations(config, traits)
    if are_texts and _has_template(config):
        yield (
            f"{model['path']} has a chat template, and prompts that are texts are given without it:"
            " model.text_role=user makes each a user's message"
        )


def _are_conversations(config: Config, traits: Traits) -> bool:
    """Whether prompts are lists of messages, as far as that is known."""
    rows = known_rows(config, traits)
    return rows is not None and any(isinstance(text, ChatText) for text in rows.texts)


def are_user_messages(config: Config) -> bool:
    """Whether a prompt that is a text is a user's message, as far as that is known."""
    role = config["model"].get("text_role")
    template = config["model"].get("chat_template")
    has_one = template != "none" and (template != "auto" or _has_template(config) is not False)
    return bool(role == "user" or (role == "auto" and has_one))


def _has_template(config: Config) -> bool | None:
    """Whether a model's folder holds a chat template; None where there is no folder here."""
    folder = folder_of(config["model"].get("path"))
    if folder is None or not os.path.isfile(folder / "tokenizer_config.json"):
        return None
    if "chat_template" in read_json(folder / "tokenizer_config.json"):
        return True
    names = ("chat_template.jinja", "chat_template.json")
    return any(os.path.isfile(folder / name) for name in names)


def require_stop_tokens(config: Config, traits: Traits) -> Iterator[Problem]:
    """With `dynamics.stop_match=token` each stop text is one token."""
    dynamics, path = config["dynamics"], config["model"].get("path")
    folder = folder_of(path) if dynamics.get("stop_match") == "token" else None
    if folder is None or not dynamics.get("stop") or not os.path.isfile(folder / TOKENIZER):
        return
    texts = [*map(typed_text, dynamics["stop"])]
    for text, ids in zip(texts, _token_ids(folder, texts), strict=True):
        if len(ids) != 1:
            message = f"is token, and {text!r} is {len(ids)} tokens of {path}; text takes any"
            yield Problem("dynamics.stop_match", message, "dynamics.stop_match=text")
            return
