"""The small runs that are interrupted: of each kind of model, with all that surrounds the loop."""

from pathlib import Path


def words(*given: str) -> tuple[str, ...]:
    """A key that is given twice counts once, as it is given last."""
    return tuple({word.split("=")[0]: word for word in given}.values())


SMALL = (
    *("hardware=cpu", "iterations=3", "prompts_per_iteration=2", "group_size=3"),
    *("evaluation.prompts=2", "evaluation.grid=2", "evaluation.every=2"),
    *("evaluation.preview_every=1", "checkpoint.every=1", "checkpoint.minutes=0"),
)
STEPS = "schedule.steps=3"
IMAGES = (*SMALL, "model=tiny_sd3", STEPS)
TEXTS = (*SMALL, "model=tiny_gpt2", "reward=length", "dynamics.length=8")
KILLED = {
    "grpo": (*IMAGES, "algo=grpo"),
    "nft": (*IMAGES, "algo=nft", "model.finetune=lora"),
    "ppo": (*TEXTS, "algo=ppo"),
}

SHORT = ("iterations=2", "sample_batch=3", "checkpoint.background=false")
"""Two batches of samples in an iteration; and a checkpoint is there once it was its turn."""
PICTURES = (*IMAGES, "model.size=32")
"""Half as wide, where a run is killed at a named point and not at a moment."""
FLUX = (*SMALL, "model=tiny_flux", STEPS, "model.finetune=lora")
OF_IMAGES = (
    "awm",
    "crd",
    "ddpo",
    "ddpo_sf",
    "dgpo",
    "flow_dppo",
    "grpo",
    "grpo_guard",
    "nft",
    "vgrpo",
)
TREE = ("group_size=4", "branches=4", "tree.splits=[0,1]")
OF_TEXTS = (
    *("cispo", "dapo", "dr_grpo", "grpo_token", "gspo", "ppo", "reinforce_pp"),
    *("cppo", "dppo", "drpo", "gmpo", "maxrl", "vespo"),
    *("raft", "reinforce_pp_baseline", "rloo"),
)
WHOLE_TEXTS = (
    *("algo.column=null", "group_size=1", "prompts_per_iteration=4", "updates_per_iteration=2"),
)
"""Learned as they are: the beginnings of reviews, in place of completions."""
DATA = Path(__file__).parents[2] / "tests" / "data"
OF_PAIRS = ("prompts=file", "group_size=2", "updates_per_iteration=2")
PAIRS = (*OF_PAIRS, f"prompts.path={DATA / 'pairs.jsonl'}")
IMAGE_PAIRS = (*OF_PAIRS, f"prompts.path={DATA / 'image_pairs.jsonl'}")
ALGORITHMS = {
    **{name: words(*PICTURES, f"algo={name}", *SHORT) for name in OF_IMAGES},
    "branch_grpo": words(*PICTURES, "algo=branch_grpo", *TREE, *SHORT),
    **{name: words(*TEXTS, f"algo={name}", *SHORT, "updates_per_iteration=2") for name in OF_TEXTS},
    "diffusion_dpo": words(*PICTURES, "algo=dpo", "group_size=2", *SHORT),
    "diffusion_dpo_offline": words(*PICTURES, "algo=diffusion_dpo_offline", *IMAGE_PAIRS, *SHORT),
    **{
        name: words(*PICTURES, f"algo={name}", "reward=jpeg_standin", "group_size=2", *SHORT)
        for name in ("draft", "refl")
    },
    "dpo": words(*TEXTS, "algo=dpo", *PAIRS, *SHORT),
    "opd": words(*PICTURES, "algo=opd", "algo.teachers=[zoo:tiny_sd3]", *SHORT),
    "opd_token": words(*TEXTS, "algo=opd", "algo.teachers=[zoo:tiny_gpt2]", *SHORT),
    "online_dpo": words(*TEXTS, "algo=online_dpo", *SHORT),
    "sft": words(*TEXTS, "algo=sft", *WHOLE_TEXTS, *SHORT),
}
OTHERS = {
    "ddpo of tiny_sd": words(*SMALL, "model=tiny_sd", STEPS, "window.size=2", *SHORT),
    "LoRA of tiny_flux": words(*FLUX, *SHORT),
    "bf16": words(*PICTURES, "algo=nft", "precision=bf16", *SHORT),
    "fp16": words(*PICTURES, "algo=grpo", "precision=fp16", *SHORT),
    "8-bit": words(*PICTURES, "algo=nft", "optimizer=adamw_8bit", *SHORT),
}
