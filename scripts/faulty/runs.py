"""The small runs that are killed: of each kind of model, with all that surrounds the loop."""

SMALL = (
    *("hardware=cpu", "iterations=3", "prompts_per_iteration=2", "group_size=3"),
    *("evaluation.prompts=2", "evaluation.grid=2", "evaluation.every=2"),
    *("evaluation.preview_every=1", "checkpoint.every=1", "checkpoint.minutes=0"),
)
IMAGES = (*SMALL, "model=tiny_sd3", "schedule.steps=3")
TEXTS = (*SMALL, "model=tiny_gpt2", "reward=length", "dynamics.length=8")
KILLED = {
    "grpo": (*IMAGES, "algo=grpo"),
    "nft": (*IMAGES, "algo=nft", "model.finetune=lora"),
    "ppo": (*TEXTS, "algo=ppo"),
}
