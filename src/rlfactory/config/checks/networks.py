"""Rules on networks: the modules that LoRA adapts, rewards' files, precision, attention, guidance,
and several processes.
"""

from collections import Counter
from collections.abc import Iterator

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.named_models import matrices, tied_modules
from rlfactory.config.problems import Problem, closest
from rlfactory.config.schema.signature import read_signature, trait
from rlfactory.model.pipelines.adapter_files import (
    ALL_LINEAR,
    ending,
    is_target,
    shared_weight,
    with_all_linear,
)

SHOWN = 8


def require_known_lora_targets(config: Config, traits: Traits) -> Iterator[Problem]:
    """Every `model.lora_targets` is the name of a module of the network, or the end of one; none
    shares its weight with another.
    """
    model = config["model"]
    targets, path = with_all_linear(model.get("lora_targets")), model.get("path")
    if not targets or targets == ALL_LINEAR or model.get("finetune") != "lora":
        return
    modules = [*matrices(path)]
    tied = tied_modules(path, modules)
    for target in [targets] if isinstance(targets, str) else targets:
        one = target if isinstance(targets, str) else [target]
        shared = [name for name in tied if is_target(name, one)]
        if shared:
            other = next(name for name in tied if name != shared[0])
            left = ",".join(name for name in targets if name != target) if one == [target] else ""
            fix = f"model.lora_targets={f'[{left}]' if left else ALL_LINEAR}"
            yield Problem("model.lora_targets", shared_weight(shared[0], other), fix)
            return
        if not modules or any(_matches(one, name) for name in modules):
            continue
        kinds = Counter(map(ending, modules))
        usual = [name for name, _ in kinds.most_common(SHOWN)]
        guess = closest(target, kinds)
        listed = targets if isinstance(targets, list) else []
        known = [name for name in listed if any(_matches([name], other) for other in modules)]
        better = [*known, *([guess] if guess and guess not in known else [])]
        message = f"the network has no module {target}; among its modules are {', '.join(usual)}"
        fix = f"model.lora_targets=[{','.join(better)}]" if better else "model.lora_targets=null"
        yield Problem("model.lora_targets", message, fix)
        return


def _matches(target: str | list[str], name: str) -> bool:
    # the files of some networks leave out the name of the network itself
    longer = not isinstance(target, str) and target[0].endswith(f".{name}")
    return longer or is_target(name, target) or is_target(f"transformer.{name}", target)


DETERMINISTIC_ATTENTION = ("native", "_native_efficient", "_native_flash", "_native_math")
_BACKENDS = "diffusers.models.attention_dispatch.AttentionBackendName"


def require_shardable(config: Config, traits: Traits) -> Iterator[Problem]:
    """FSDP2 shards a network, but no critic of its own; and what it has trained parameters of are
    DTensors, which bitsandbytes' optimizers do not know.
    """
    if config["hardware"].get("strategy") != "fsdp2":
        return
    if config["model"].get("value_path") is not None:
        message = "fsdp2 does not shard a critic of its own; allowed is a value head"
        yield Problem("hardware.strategy", message, "model.value_path=null")
    optimizer = str(config["optimizer"].get("_target_"))
    if config["model"].get("finetune") != "lora" and optimizer.startswith("bitsandbytes."):
        message = "fsdp2 with full fine-tuning shards moments in float32; 8-bit ones are for LoRA"
        yield Problem("optimizer", message, "optimizer=adamw")
    if trait(config["optimizer"], "whole_matrices", False):
        message = "fsdp2 shards matrices, which this optimizer needs as a whole"
        yield Problem("optimizer", message, "optimizer=adamw")


def require_equal_replay_precision(config: Config, traits: Traits) -> Iterator[Problem]:
    """Recorded log-probabilities of sampling steps are compared in the precision of sampling."""
    rollout, learning = config["precision"]["rollout"], config["precision"]["learning"]
    replays = traits["algo"].get("requires") == "transitions"
    if replays and rollout != learning and config["algo"].get("old_log_probs") == "sampled":
        message = (
            f"is sampled, in {rollout}, and learning computes in {learning}: the ratio of a"
            " replayed step would not start at 1"
        )
        yield Problem("algo.old_log_probs", message, "algo.old_log_probs=recomputed")


def require_sufficient_weight_precision(config: Config, traits: Traits) -> Iterator[Problem]:
    """A network with half-precision weights computes in that precision only.

    A language model that is trained in full has float32 weights whatever is set.
    """
    weights, *computed = (config["precision"][key] for key in ("weights", "rollout", "learning"))
    others = sorted({*computed} - {weights})
    is_pipeline = traits["model"].get("media") != "texts"
    is_frozen = is_pipeline or config["model"].get("finetune") == "lora"
    if is_frozen and weights != "float32" and others:
        message = f"is {weights}, but the network also computes in {' and '.join(others)}"
        yield Problem("precision.weights", message, "precision.weights=float32")


def require_known_attention(config: Config, traits: Traits) -> Iterator[Problem]:
    """`memory.attention` is a backend of diffusers, for a network that has a choice."""
    backend = config["memory"]["attention"]
    if backend is None or traits["model"].get("media") == "texts":
        return
    known = sorted(
        name for name in read_signature(_BACKENDS).class_constants.values() if isinstance(name, str)
    )
    if not traits["model"].get("attention_backends", True):
        message = "is set, but this network has torch's attention, which chooses by itself"
        yield Problem("memory.attention", message, "memory.attention=null")
    elif backend.lower() not in known:
        message = f"is {backend}; diffusers knows {', '.join(known)}"
        yield Problem("memory.attention", message, "memory.attention=native")


def require_deterministic_attention(config: Config, traits: Traits) -> Iterator[Problem]:
    """In deterministic mode attention is torch's own, which has deterministic kernels."""
    backend = str(config["memory"]["attention"] or "native").lower()
    if config["hardware"].get("deterministic") is not True or backend in DETERMINISTIC_ATTENTION:
        return
    message = f"is {backend}, whose backward pass differs from run to run (hardware.deterministic)"
    yield Problem("memory.attention", message, "memory.attention=native")


def require_guidance_above_one(config: Config, traits: Traits) -> Iterator[Problem]:
    """Guidance is 1 (none) or more; a negative prompt has an effect only above 1."""
    guidance, negative = (config["model"].get(key) for key in ("guidance", "negative_prompt"))
    if guidance is None or guidance > 1:
        return
    if 0 < guidance < 1:
        message = f"is {guidance:g}; allowed is 1 (no guidance) or more"
        yield Problem("model.guidance", message, "model.guidance=1")
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
