"""How the network is evaluated: precision, attention, guidance."""

from collections.abc import Iterator

from rlfactory.crossings.base import Config, Traits, nearest_divisors
from rlfactory.problems import Problem
from rlfactory.signature import read

_BACKENDS = "diffusers.models.attention_dispatch.AttentionBackendName"


def processes_share_groups(config: Config, traits: Traits) -> Iterator[Problem]:
    """Groups are whole, and every process has equally many."""
    node, prompts = config["hardware"], config["prompts_per_iteration"]
    count = node.get("processes", 1)
    if prompts % count:
        near = nearest_divisors(prompts, count)
        named = ", ".join(map(str, sorted(near)))
        more = -(-prompts // count) * count
        message = f"is {count}, which does not divide the {prompts} groups of an iteration"
        yield Problem(
            "hardware.processes",
            f"{message}; nearest are {named}, or prompts_per_iteration={more}",
            f"hardware.processes={near[0]}",
        )


def divided_networks_train_whole(config: Config, traits: Traits) -> Iterator[Problem]:
    """Adapters are small enough for every process, and losses can't be scaled part by part."""
    if config["hardware"].get("strategy") != "fsdp2":
        return
    if config["model"].get("finetune") == "lora":
        message = "is fsdp2, which divides a network that is trained whole, and this is LoRA"
        yield Problem("hardware.strategy", message, "hardware.strategy=ddp")
    if config["precision"].get("learning") == "float16":
        message = "is fsdp2, and float16 scales its losses; allowed are fp32 and bf16"
        yield Problem("hardware.strategy", message, "rlfactory list precision")
    if config["model"].get("value_path") is not None:
        message = "is fsdp2, and a critic of its own is not divided; allowed is a head"
        yield Problem("hardware.strategy", message, "model.value_path=null")


def replay_computes_alike(config: Config, traits: Traits) -> Iterator[Problem]:
    """A replayed step is as likely as when it was drawn, so it is computed as it was then."""
    rollout, learning = config["precision"]["rollout"], config["precision"]["learning"]
    if traits["algo"].get("needs") == "transitions" and rollout != learning:
        message = (
            f"is {rollout}, and learning computes in {learning}: the ratio of a replayed step would"
            " not start at 1; algorithms on final samples (nft, awm, vgrpo) don't replay"
        )
        yield Problem("precision.rollout", message, f"precision.rollout={learning}")


def frozen_weights_suffice(config: Config, traits: Traits) -> Iterator[Problem]:
    """Weights in half precision compute in that precision alone."""
    weights, *computed = (config["precision"][key] for key in ("weights", "rollout", "learning"))
    others = sorted({*computed} - {weights})
    if traits["model"].get("media") == "images" and weights != "float32" and others:
        message = f"is {weights}, but the network is to compute in {' and '.join(others)} too"
        yield Problem("precision.weights", message, "precision.weights=float32")


def attention_is_known(config: Config, traits: Traits) -> Iterator[Problem]:
    """A backend is one of diffusers', for a network whose attention has any."""
    backend = config["memory"]["attention"]
    if backend is None or traits["model"].get("media") != "images":
        return
    known = sorted(name for name in read(_BACKENDS).traits.values() if isinstance(name, str))
    if not traits["model"].get("attention_backends", True):
        message = "is set, but this network's attention is torch's own, which chooses by itself"
        yield Problem("memory.attention", message, "memory.attention=null")
    elif backend.lower() not in known:
        message = f"is {backend}; diffusers knows {', '.join(known)}"
        yield Problem("memory.attention", message, "memory.attention=native")


def guidance_guides(config: Config, traits: Traits) -> Iterator[Problem]:
    """Guidance begins above 1, and there alone a negative prompt is asked about."""
    guidance, negative = (config["model"].get(key) for key in ("guidance", "negative_prompt"))
    if guidance is None or guidance > 1:
        return
    if 0 < guidance < 1:
        message = f"is {guidance:g}; above 1 there is guidance, and at 1 none"
        yield Problem("model.guidance", message, "model.guidance=1")
    elif negative:
        message = f"is {guidance:g}, no guidance, so nobody reads model.negative_prompt={negative}"
        yield Problem("model.guidance", message, "model.guidance=4.5")
