"""Rules on networks: the modules that LoRA adapts, and the files of rewards' networks."""

import os
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlfactory.config.checks.base import Config, Traits, rewards_of
from rlfactory.config.memory.language_shapes import LLAMA_LIKE
from rlfactory.config.memory.model_parts import NETWORKS, shapes
from rlfactory.config.problems import Problem, closest
from rlfactory.model.pipelines.local_models import (
    MODEL_INDEX,
    ZOO_PREFIX,
    folder_of,
    hub_cache,
    is_offline,
    read_json,
    snapshot,
)
from rlfactory.utils.live_objects import is_reference

PATH_KEYS = ("path", "clip_path", "head", "processor")
"""Options of the shipped rewards that name a folder, a file or a hub id."""
LANGUAGE_MODELS = LLAMA_LIKE | {"gpt2", "qwen3"}
"""Types of language models whose modules are named as in their files."""
SHOWN = 8


def require_known_lora_targets(config: Config, traits: Traits) -> Iterator[Problem]:
    """Every `model.lora_targets` is the name of a module of the network, or the end of one."""
    model = config["model"]
    targets, path = model.get("lora_targets"), model.get("path")
    if not targets or model.get("finetune") != "lora" or not isinstance(path, str):
        return
    modules = _modules(path) if not is_reference(path) else []
    for target in targets if modules else ():
        if any(_matches(target, name) for name in modules):
            continue
        kinds = Counter(re.sub(r"^.*\.\d+\.(?=[a-z])", "", name) for name in modules)
        usual = [name for name, _ in kinds.most_common(SHOWN)]
        guess = closest(target, kinds)
        known = [name for name in targets if any(_matches(name, other) for other in modules)]
        better = [*known, *([guess] if guess and guess not in known else [])]
        message = f"the network has no module {target}; among its modules are {', '.join(usual)}"
        fix = f"model.lora_targets=[{','.join(better)}]" if better else "model.lora_targets=null"
        yield Problem("model.lora_targets", message, fix)
        return


def _matches(target: str, name: str) -> bool:
    # the files of some networks leave out the name of the network itself
    return name == target or name.endswith(f".{target}") or target.endswith(f".{name}")


def _modules(path: str) -> Sequence[str]:
    """The modules with matrices of a network on this machine; empty where they are not known."""
    folder = folder_of(path)
    if folder is None:
        return ()
    network = next((folder / name for name in NETWORKS if (folder / name).is_dir()), folder)
    is_language_model = network == folder
    if (
        is_language_model
        and read_json(folder / MODEL_INDEX).get("model_type") not in LANGUAGE_MODELS
    ):
        return ()
    try:
        found = [item for file in network.glob("*.safetensors") for item in shapes(file).items()]
    except (OSError, ValueError, struct.error):
        return ()
    return sorted({name.rpartition(".")[0] for name, shape in found if len(shape) > 1})


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
