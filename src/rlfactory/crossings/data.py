"""What is asked, and what judges it."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlfactory.crossings.base import Config, Traits, judges
from rlfactory.problems import Problem

LOOKED_AT = 1000
"""Lines of a file of prompts: a plan is made at once, and a run reads them all."""


def reward_judges_what_is_made(config: Config, traits: Traits) -> Iterator[Problem]:
    """A reward of images scores images; so does each that is a part or only evaluates."""
    made = traits["model"].get("media")
    for key, _, ours in judges(config, traits):
        judged = ours.get("media")
        if judged and made and judged != made:
            yield Problem(key, f"this reward judges {judged}, and the model makes {made}")


def rewards_have_company(config: Config, traits: Traits) -> Iterator[Problem]:
    """A reward that compares the samples of a prompt has more than one."""
    ours = (own for key, own in traits.items() if f"{key}.".startswith("reward."))
    if config["group_size"] == 1 and any(own.get("compares_group") for own in ours):
        message = "is 1, but this reward compares the samples of a group; allowed are 2 or more"
        yield Problem("group_size", message, "group_size=4")


def prompts_bring_metadata(config: Config, traits: Traits) -> Iterator[Problem]:
    """Every reward finds in each prompt what it compares with."""
    brought = traits["prompts"].get("metadata")
    path = Path(str(config["prompts"].get("path"))).expanduser()
    if path.suffix == ".txt" and os.path.isfile(path):
        brought = ()
    for key, _, ours in judges(config, traits):
        wanted = ours.get("metadata") or ()
        missing = [name for name in wanted if brought is not None and name not in brought]
        if missing:
            reader = "the reward" if key == "reward" else key
            message = f"these bring no {', '.join(missing)}, which {reader} reads of each prompt"
            yield Problem("prompts", message, "prompts=shapes")


def prompt_files_are_readable(config: Config, traits: Traits) -> Iterator[Problem]:
    """A file of prompts exists, holds something, and is text."""
    if not str(config["prompts"]["_target_"]).endswith("FilePrompts"):
        return
    for name in ("path", "eval_path"):
        value = config["prompts"].get(name)
        fault = _text_fault(Path(value).expanduser()) if isinstance(value, str) else None
        if fault:
            yield Problem(f"prompts.{name}", f"{value} {fault}", f"prompts.{name}=FILE.txt")


def _text_fault(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return f"is not UTF-8 (byte {error.start})"
    except OSError as error:
        return f"can't be read: {error.strerror}"
    if path.suffix not in (".txt", ".jsonl"):
        return "is neither .txt nor .jsonl"
    if not text.strip():
        return "is empty"
    return _line_fault(text.split("\n")[:LOOKED_AT]) if path.suffix == ".jsonl" else None


def _line_fault(lines: Sequence[str]) -> str | None:
    """The first of some lines that isn't an object with a `prompt`."""
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line) if line.strip() else {"prompt": "a blank line"}
        except ValueError as error:
            return f"is no JSON in line {number}: {error}"
        if not isinstance(value, dict) or not isinstance(value.get("prompt"), str):
            return f"has no object with a `prompt` in line {number}"
    return None
