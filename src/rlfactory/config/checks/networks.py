"""Rules on networks: the modules that LoRA adapts, and the files of rewards' networks."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlfactory.config.begun_weights import matrices
from rlfactory.config.checks.base import Config, Traits, rewards_of
from rlfactory.config.problems import Problem, closest
from rlfactory.model.pipelines.adapter_files import (
    ALL_LINEAR,
    ending,
    is_target,
    shared_weight,
    with_all_linear,
)
from rlfactory.model.pipelines.local_models import (
    MODEL_INDEX,
    ZOO_PREFIX,
    folder_of,
    hub_cache,
    is_offline,
    read_json,
    snapshot,
)

PATH_KEYS = ("path", "clip_path", "head", "processor")
"""Options of the shipped rewards that name a folder, a file or a hub id."""
OUTPUT, EMBEDDINGS = "lm_head", ("wte", "transformer.wte", "model.embed_tokens", "embed_tokens")
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
    tied = _tied(path, modules)
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


def _tied(path: object, modules: Sequence[str]) -> list[str]:
    """The output projection and the embedding of a language model, if they are one matrix."""
    folder = folder_of(path)
    config = read_json(folder / MODEL_INDEX) if folder else {}
    embedding = [name for name in modules if ending(name) in EMBEDDINGS]
    default = OUTPUT not in modules or config.get("model_type") == "gpt2"
    if not config.get("tie_word_embeddings", default) or not embedding:
        return []
    return [OUTPUT, *embedding]


def require_reward_files(config: Config, traits: Traits) -> Iterator[Problem]:
    """The folders and files of shipped rewards' networks exist; hub ids are not asked for."""
    for key, node, _ in rewards_of(config, traits):
        if not str(node.get("_target_")).startswith("rlfactory.reward."):
            continue
        for name in PATH_KEYS:
            value = node.get(name)
            if isinstance(value, str) and (fault := _file_fault(value)):
                yield Problem(f"{key}.{name}", f"{value} {fault}")


def _file_fault(value: str) -> str | None:
    path = Path(value).expanduser()
    if value.startswith(ZOO_PREFIX):
        return None if folder_of(value) else "does not ship"
    if value == "???" or os.path.exists(path):
        return None
    parts = value.split("/")
    if value.startswith(("/", ".", "~")) or (len(parts) == 1 and path.suffix):
        return "does not exist; allowed are a folder, a file or a hub id"
    repo = "/".join(parts[:2])
    if len(parts) > 1 and is_offline() and snapshot(repo) is None:
        return (
            f"is not in {hub_cache()}, and HF_HUB_OFFLINE is set; unset it, or hf download {repo}"
        )
    return None
