"""Rules on tokens: those of prompts are rows of the model's embedding, and stop texts are texts."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.checks.prompt_files import known_rows
from rlfactory.config.problems import Problem
from rlfactory.model.pipelines.local_models import folder_of, read_json
from rlfactory.utils.live_objects import is_reference


def require_rows_of_tokens(config: Config, traits: Traits) -> Iterator[Problem]:
    """No prompt has a token that was added to the tokenizer and not to the model."""
    path, head = config["model"].get("path"), known_rows(config, traits)
    if traits["model"].get("media") != "texts" or not isinstance(path, str) or is_reference(path):
        return
    if (folder := folder_of(path)) is None:
        return
    rows = read_json(folder / "config.json").get("vocab_size")
    if not isinstance(rows, int):
        return
    column = str(config["prompts"].get("column", "prompt"))
    prompts = [str(row.get(column)) for row in (() if head is None else head.rows)]
    system = config["model"].get("system_prompt") or ""
    for token in _added_tokens(folder / "tokenizer.json"):
        for key, texts in (("prompts", prompts), ("model.system_prompt", [system])):
            if token["id"] >= rows and any(token["content"] in text for text in texts):
                message = (
                    f"has {token['content']!r}, token {token['id']} of the tokenizer, and the"
                    f" embedding of {path} has {rows} rows; add rows for it in transformers by"
                    " resize_token_embeddings, or leave it out"
                )
                yield Problem(key, message)


def _added_tokens(path: Path) -> list[dict[str, Any]]:
    """The list `added_tokens` of a tokenizer's file, whose other megabytes are not parsed."""
    try:
        text = path.read_text(encoding="utf-8")
        start = text.index("[", text.index('"added_tokens"'))
        found: list[dict[str, Any]] = json.JSONDecoder().raw_decode(text, start)[0]
    except (OSError, ValueError):
        return []
    return found


def stop_notes(config: Config) -> Iterator[str]:
    """A note where a stop text has something that stands for another character."""
    for text in config["dynamics"].get("stop") or []:
        if re.search(r"\\[nrt\\]", text):
            yield rf"dynamics.stop: in {text} \n is a line break, \t a tab, and \\ a backslash"
