"""Rules on networks: the modules that LoRA adapts, precision, attention, guidance, and engines."""

from collections import Counter
from collections.abc import Iterator

from rlfactory.config.checks.base import Config, Traits, only
from rlfactory.config.named_models import matrices, tied_modules
from rlfactory.config.problems import Problem, closest
from rlfactory.config.schema.signature import read_signature
from rlfactory.model.pipelines.adapter_files import (
    ALL_LINEAR,
    ending,
    is_target,
    shared_weight,
    with_all_linear,
)

SHOWN = 8


def require_known_lora_targets(config: Config, traits: Traits) -> Iterator[Problem]:
    """Every `model.lora_targets` is a module's name, or the end of one; none shares its weight."""
    model, key = config["model"], "model.lora_targets"
    targets, path = with_all_linear(model.get("lora_targets")), model.get("path")
    if not targets or targets == ALL_LINEAR or model.get("finetune") != "lora":
        return
    modules, is_list = [*matrices(path)], isinstance(targets, list)
    tied = tied_modules(path, modules)
    for target in targets if isinstance(targets, list) else [targets]:
        # a text is a regular expression, a name in a list is the end of another
        one = [target] if is_list else target
        if shared := [name for name in tied if is_target(name, one)]:
            other = next(name for name in tied if name != shared[0])
            left = ",".join(t for t in targets if is_list and t != target)
            fix = f"{key}={f'[{left}]' if left else ALL_LINEAR}"
            yield Problem(key, shared_weight(shared[0], other), fix)
            return
        if modules and not any(_matches(one, name) for name in modules):
            kinds = Counter(map(ending, modules))
            usual = ", ".join(name for name, _ in kinds.most_common(SHOWN))
            known = [t for t in targets if is_list and any(_matches([t], name) for name in modules)]
            guess = closest(target, kinds)
            better = ",".join(dict.fromkeys([*known, *([guess] if guess else [])]))
            message = f"the network has no module {target}; among its modules are {usual}"
            yield Problem(key, message, f"{key}={f'[{better}]' if better else 'null'}")
            return


def _matches(target: str | list[str], name: str) -> bool:
    # the files of some networks leave out the name of the network itself
    longer = not isinstance(target, str) and target[0].endswith(f".{name}")
    return longer or is_target(name, target) or is_target(f"transformer.{name}", target)


def require_equal_precision(config: Config, traits: Traits) -> Iterator[Problem]:
    """Recorded log-probabilities of sampling steps are compared in the precision of sampling; a
    network with half-precision weights computes in that precision only.

    A language model that is trained in full has float32 weights whatever is set.
    """
    weights, rollout, learning = map(config["precision"].get, ("weights", "rollout", "learning"))
    replays = traits["algo"].get("requires") == "transitions"
    if replays and rollout != learning and config["algo"].get("old_log_probs") == "sampled":
        reason = f"that is in {rollout}, learning in {learning}: no first ratio would be 1"
        yield from only(config, {"algo.old_log_probs": "recomputed"}, reason)
    is_pipeline = traits["model"].get("media") != "texts"
    is_frozen = is_pipeline or config["model"].get("finetune") == "lora"
    if is_frozen and {rollout, learning} != {weights}:
        others = " and ".join(sorted({rollout, learning} - {weights}))
        reason = f"the network also computes in {others}"
        yield from only(config, {"precision.weights": "float32"}, reason)


DETERMINISTIC_ATTENTION = ("native", "_native_efficient", "_native_flash", "_native_math")
_BACKENDS = "diffusers.models.attention_dispatch.AttentionBackendName"


def require_known_attention(config: Config, traits: Traits) -> Iterator[Problem]:
    """`memory.attention` is a backend that the network can have; in deterministic mode torch's own,
    which have deterministic kernels.
    """
    backend, key = config["memory"]["attention"], "memory.attention"
    if backend is None or traits["model"].get("media") == "texts":
        return
    if not traits["model"].get("attention_backends", True):
        reason = "this network has torch's attention, which chooses by itself"
        yield from only(config, {key: None}, reason)
        return
    values = read_signature(_BACKENDS).class_constants.values()
    known, among = sorted(name for name in values if isinstance(name, str)), "diffusers knows"
    if config["hardware"].get("deterministic") is True:
        known, among = [*DETERMINISTIC_ATTENTION], "the same in each run (hardware.deterministic)"
    if backend.lower() not in known:
        yield Problem(key, f"is {backend}; {among} {', '.join(known)}", f"{key}=native")


def require_guidance_above_one(config: Config, traits: Traits) -> Iterator[Problem]:
    """Guidance is 1 (none) or more; a negative prompt has an effect only above 1."""
    guidance, negative = (config["model"].get(key) for key in ("guidance", "negative_prompt"))
    if guidance is None or guidance > 1:
        return
    if 0 < guidance < 1:
        yield from only(config, {"model.guidance": 1}, "below 1 it turns away from the prompt")
    elif negative:
        message = f"is {guidance:g}, no guidance, so model.negative_prompt={negative} is not read"
        yield Problem("model.guidance", message, "model.guidance=4.5")


def require_engine_of_texts(config: Config, traits: Traits) -> Iterator[Problem]:
    """An engine draws the texts of a single process."""
    if traits["engine"].get("draws_by") != "engine":
        return
    if traits["model"].get("process") != "tokens":
        yield Problem("engine", "draws texts, and the model draws none", "engine=own")
    if config["hardware"].get("processes", 1) != 1 or "strategy" in config["hardware"]:
        message = "is driven by one process; with several the model's own loop draws"
        yield Problem("engine", message, "engine=own")
