"""DanceGRPO's scripts for FLUX and Stable Diffusion as a command."""

from collections.abc import Mapping
from typing import Any

from rlfactory.config.peers.translation import Fields, Translation, translate_rest
from rlfactory.config.problems import PlanError, Problem

NAME = "DanceGRPO"
PRESETS = {"flux": "peer/dance", "stable-diffusion-v1": "peer/dance_sd"}
"""Their published runs, by a part of the model's path."""
ACCUMULATION = "gradient_accumulation_steps"
NOTHING = {
    **dict.fromkeys(("sp_size", "train_sp_batch_size", "num_latent_t", "t"), "of videos"),
    **dict.fromkeys(("vae_model_path", "cache_dir", "data_json_path"), "prompts=hpdv2, HPDv2's"),
    "cfg": "the share of prompts left out in their supervised training",
    "sampler_seed": "all random numbers follow from seed",
    "use_group": "advantages are of groups",
    "bestofn": "all samples are learned from",
    "rationorm": "the published loss has none",
}


def translate(content: Mapping[str, Any], processes: int) -> Translation:
    """Translate the options of `train_grpo_flux.py` or `train_grpo_sd.py`.

    An iteration has one prompt on each GPU.

    Raises:
        PlanError: the model is none that is trained here.
    """
    fields, into = Fields(content), Translation(NAME)
    path = str(fields.take("pretrained_model_name_or_path"))
    preset = next((preset for part, preset in PRESETS.items() if part in path.lower()), None)
    if preset is None:
        message = f"{path} is none of FLUX and Stable Diffusion 1, which are translated"
        raise PlanError([Problem("pretrained_model_name_or_path", message)])
    into.type(f"experiment={preset}")
    if "/" in path and not path.startswith("data/"):
        into.set("model.path", path)
    else:
        into.notes.append(f"{path} there: model.path is that of {preset}")
    group, accumulated = fields.take("num_generations", 12), fields.take(ACCUMULATION, 1)
    into.set("group_size", group)
    into.set("prompts_per_iteration", processes * fields.take("train_batch_size", 1))
    into.set("updates_per_iteration", max(1, group // accumulated))
    into.set("iterations", fields.take("max_train_steps", 300))  # a step there is an iteration
    into.set("checkpoint.every", fields.take("checkpointing_steps", 0))
    into.set("branches", group if fields.take("init_same_noise", False) else 1)
    into.set("window.skip_last", int(bool(fields.take("ignore_last", False))))
    for flag, reward in {"use_hpsv2": "hps", "use_pickscore": "pickscore"}.items():
        if fields.take(flag, False):
            into.type(f"reward={reward}")
    if processes > 1:
        into.type("hardware=fsdp2", f"hardware.processes={processes}")
    else:
        into.notes.append("for 1 GPU, as the script says of none; more by --gpus N")
    translate_rest(fields, into, (NAME,), NOTHING)
    return into
