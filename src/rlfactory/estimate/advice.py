"""What to type where a run does not fit: the options that help most, and what each would save."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlfactory.crossings.base import Config, Traits
from rlfactory.estimate.device import ROOM, available
from rlfactory.estimate.memory import GIB, Estimate, estimate, with_changes

MOST = 3
BF16 = {"weights": "bfloat16", "rollout": "bfloat16", "learning": "bfloat16"}
SWITCHES = ("gradient_checkpointing", "offload_text", "offload_weights", "vae_slicing")


@dataclass(frozen=True)
class Remedy:
    """A word to type, and how many bytes it takes off the peak once those before it are typed."""

    word: str
    saves: float

    def __str__(self) -> str:
        return f"{self.word} (saves {self.saves / GIB:.1f})"


def told(config: Config, found: Estimate | None) -> str:
    """The estimate in words, beside what there is."""
    if found is None:
        return f"not known before {config['model'].get('path')} is loaded"
    has, who = available(config)
    each = "in each process " if config["hardware"].get("processes", 1) > 1 else ""
    return f"{each}{found}" + (f"; {who} has {has / GIB:.0f}" if has else "")


def notes(config: Config, traits: Traits, found: Estimate | None) -> Iterator[str]:
    """A word of warning where a run plainly does not fit."""
    has, who = available(config)
    if found is None or has is None or found.peak <= ROOM * has:
        return
    short = f"this needs about {found.peak / GIB:.1f} GiB and {who} has {has / GIB:.0f}"
    yield f"{short}{_after(remedies(config, traits))}"


def exhausted(config: Config, traits: Traits) -> str:
    """What to say where memory did run out."""
    found = estimate(config, traits) if traits["model"].get("media") != "texts" else None
    expected = "" if found is None else f"; the plan expected {found}"
    return f"out of memory{expected}{_after(remedies(config, traits))}"


def _after(helping: tuple[list[Remedy], float | None]) -> str:
    """Remedies as the end of a sentence."""
    words, left = helping
    if not words:
        return ""
    listed = ", ".join(map(str, words) if left is not None else (r.word for r in words))
    then = "" if left is None else f", which leaves about {left / GIB:.1f}"
    return f". What helps most, in this order: {listed}{then}"


def remedies(config: Config, traits: Traits) -> tuple[list[Remedy], float | None]:
    """The options that take most off the peak, one after the other, and the peak with all."""
    now = estimate(config, traits)
    if now is None:
        return [Remedy(word, 0.0) for word, _ in options(config, traits)][:MOST], None
    chosen: dict[str, Remedy] = {}
    while True:
        tried = [(word, with_changes(config, changes)) for word, changes in options(config, traits)]
        found = [(word, c, e) for word, c in tried if (e := estimate(c, traits)) is not None]
        if not found:
            break
        word, better, then = min(found, key=lambda entry: entry[2].peak)
        if now.peak - then.peak < 0.02 * now.peak:
            break
        key = word.partition("=")[0]
        if key not in chosen and len(chosen) == MOST:
            break
        before = chosen[key].saves if key in chosen else 0.0  # a batch that was halved already
        chosen[key] = Remedy(word, before + now.peak - then.peak)
        config, now = better, then
    return [*chosen.values()], now.peak


def options(config: Config, traits: Traits) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each word that could save memory here, with what it changes."""
    if traits["model"].get("media") == "images":
        yield from _of_images(config)
    for name in ("micro_batch", "sample_batch"):
        if config[name] > 1:
            fewer = max(config[name] // 2, 1)
            yield f"{name}={fewer}", {name: fewer}
    if config["model"].get("finetune") == "full":
        yield "model.finetune=lora", {"model.finetune": "lora"}
        if "8bit" not in config["optimizer"]["_target_"]:
            yield "optimizer=adamw_8bit", {"optimizer._target_": "bitsandbytes.optim.AdamW8bit"}


def _of_images(config: Config) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What image models alone heed."""
    if "float32" in config["precision"].values():
        yield "precision=bf16", {"precision": BF16}
    for name in SWITCHES:
        if not config["memory"][name]:
            yield f"memory.{name}=true", {f"memory.{name}": True}
