"""Prompts and rewards of other libraries' configurations as words of the command."""

from collections.abc import Mapping
from pathlib import Path


def prompts_of(place: str, folder: Path) -> list[str]:
    """What to type for a folder of prompts `train.txt` or `train.jsonl`, by its name or files."""
    name = place.rstrip("/").rpartition("/")[2].lower()
    known = {"pickscore": "pick_a_pic", "ocr": "signs", "geneval": "geneval"}
    if name in known:
        return [f"prompts={known[name]}"]
    kind = "txt" if (folder / place / "train.txt").is_file() else "jsonl"
    words = ["prompts=file", f"prompts.path={place}/train.{kind}"]
    if (folder / place / f"test.{kind}").is_file():
        words.append(f"prompts.eval_path={place}/test.{kind}")
    return words


def combined(weights: Mapping[str, float]) -> list[str]:
    """What to type for rewards with weights; nothing for none."""
    if len(weights) < 2:
        return [f"reward={name}" for name in weights]
    words = ["reward=combine", f"reward.of=[{','.join(weights)}]"]
    return [*words, *(f"reward.weights.{n}={w:g}" for n, w in weights.items() if w != 1)]
