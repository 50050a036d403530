"""Suggestions for a run that does not fit into memory: the options that save most."""

from collections import deque
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.memory.devices import GIB, USABLE_FRACTION, available_memory, processes_of
from rlfactory.config.memory.estimate import Estimate, estimate
from rlfactory.config.schema.signature import Signature
from rlfactory.config.schema_problems import all_node_problems
from rlfactory.utils.dotted_keys import with_values

MAX_SUGGESTIONS = 3
HOST_WORTH_A_ROW = 8.0 * GIB
"""Main memory of a process from which on the plan mentions it."""
BF16 = {f"precision.{name}": "bfloat16" for name in ("weights", "rollout", "learning")}
SWITCHES = ("gradient_checkpointing", "offload_text", "offload_weights", "vae_slicing")
TEXT_SWITCHES = ("gradient_checkpointing", "offload_weights")
"""The switches of `memory` that language models read."""


def describe(config: Config, found: Estimate | None) -> str:
    """The estimate in words, and the memory that the device has."""
    if found is None:
        return f"not known before {config['model'].get('path')} is loaded"
    available, device = available_memory(config)
    each = "in each process " if processes_of(config) > 1 else ""
    return f"{each}{found}" + (f"; {device} has {available / GIB:.0f}" if available else "")


def describe_host(found: Estimate) -> str:
    """Main memory of a process beside its device's."""
    return f"about {found.host / GIB:.1f} GiB a process, for the snapshot and a checkpoint"


def notes(config: Config, traits: Traits, found: Estimate | None) -> Iterator[str]:
    """A warning if the run will not fit."""
    available, device = available_memory(config)
    if found is None or available is None or found.peak <= USABLE_FRACTION * available:
        return
    short = f"this needs about {found.peak / GIB:.1f} GiB and {device} has {available / GIB:.0f}"
    yield f"{short}{_in_words(suggestions(config, traits))}"


def explain_out_of_memory(error: BaseException, config: Config) -> str:
    """The message for an out-of-memory error: what was expected, which options help, the error."""
    traits, first_line = traits_of(config), str(error).strip().partition("\n")[0]
    found = estimate(config, traits)
    expected = "" if found is None else f"; the plan expected {found}"
    helps = _in_words(suggestions(config, traits))
    return f"out of memory{expected}{helps}\n{first_line.partition('. ')[0]}"


def _in_words(suggested: tuple[dict[str, float], float | None]) -> str:
    """Suggestions as the end of a sentence."""
    chosen, peak = suggested
    if not chosen:
        return ""
    if peak is None:
        return f". What helps most, in this order: {', '.join(chosen)}"
    listed = ", ".join(f"{word} (saves {saves / GIB:.1f})" for word, saves in chosen.items())
    return f". What helps most, in this order: {listed}, which leaves about {peak / GIB:.1f}"


def suggestions(config: Config, traits: Traits) -> tuple[dict[str, float], float | None]:
    """The overrides that lower the peak most, chosen greedily, each with the bytes that it saves on
    top of those before it; and the peak with all of them.

    The peak is None where the run can't be estimated; then the first options are suggested.
    """
    found = estimate(config, traits)
    if found is None:
        return dict.fromkeys([w for w, _ in options(config, traits)][:MAX_SUGGESTIONS], 0.0), None
    chosen, now = dict[str, float](), found.peak
    while len(chosen) < MAX_SUGGESTIONS:
        changed = [(word, with_values(config, values)) for word, values in options(config, traits)]
        peaks = [(e.peak, word, c) for word, c in changed if (e := estimate(c, traits))]
        peak, word, smaller = min(peaks, key=itemgetter(0), default=(now, "", config))
        if now - peak < 0.02 * now:
            break
        chosen[word] = now - peak
        config, now = smaller, peak
    return chosen, now


def options(config: Config, traits: Traits) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each override that could save memory, with the values that it changes."""
    texts = traits["model"].get("media") == "texts"
    if "float32" in config["precision"].values():
        yield "precision=bf16", BF16
    for name in TEXT_SWITCHES if texts else SWITCHES:
        if not config["memory"][name]:
            yield f"memory.{name}=true", {f"memory.{name}": True}
    for name in ("micro_batch", "sample_batch"):
        if config[name] > 1:
            yield f"{name}=1", {name: 1}
    if config["model"].get("finetune") == "full":
        yield "model.finetune=lora", {"model.finetune": "lora"}
        if "8bit" not in config["optimizer"]["_target_"]:
            yield "optimizer=adamw_8bit", {"optimizer._target_": "bitsandbytes.optim.AdamW8bit"}


def traits_of(config: Config) -> Traits:
    """The class constants of a frozen configuration's components, by key."""
    signatures: dict[str, Signature] = {}
    deque(all_node_problems(config, signatures), maxlen=0)
    return {key: signature.class_constants for key, signature in signatures.items()}
