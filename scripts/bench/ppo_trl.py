"""Timed PPO iterations of TRL: the other side of trl_ppo.py, run in TRL's environment."""

import tempfile
from pathlib import Path
from typing import Any

import torch
import trl
from datasets import Dataset
from probe import Laps, job, report
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    TrainerCallback,
)
from trl.experimental.ppo import PPOConfig, PPOTrainer


class Timed(TrainerCallback):
    """Times iterations; learning starts at the first joint forward pass of policy and critic."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape, self.laps, self.is_learning = shape, Laps(), False

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.laps = Laps()

    def before_forward(self, module: torch.nn.Module, _: Any, inputs: dict[str, Any]) -> None:
        assert inputs["input_ids"].shape == self.shape
        if not self.is_learning:
            self.laps.lap("rollout")
            self.is_learning = True

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.laps.end("learn")
        self.is_learning = False


def settings(job: dict[str, Any], folder: str) -> PPOConfig:
    """TRL's defaults for what is learned; for how it runs, the fastest settings."""
    return PPOConfig(
        output_dir=folder,
        total_episodes=job["batch"] * job["iterations"],
        # if split further, TRL's optimizer would step once for several minibatches
        per_device_train_batch_size=job["batch"],
        gradient_accumulation_steps=1,
        num_mini_batches=job["minibatches"],
        num_ppo_epochs=job["epochs"],
        response_length=job["response"],
        local_rollout_forward_batch_size=job["batch"],
        num_sample_generations=0,
        gradient_checkpointing=False,
        bf16="precision=bf16" in job.get("more", []),
        use_cpu=job.get("hardware", "cpu") == "cpu",
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


def trainer(job: dict[str, Any], folder: str) -> PPOTrainer:
    """The trainer with four networks, as in TRL's example."""
    words = AutoTokenizer.from_pretrained(job["policy"], padding_side="left")
    if words.pad_token is None:
        words.add_special_tokens({"pad_token": "[PAD]"})
    lines = Path(job["prompts"]).read_text(encoding="utf-8").split("\n")
    policy, reference = (
        AutoModelForCausalLM.from_pretrained(job["policy"], dtype=torch.float32) for _ in range(2)
    )
    reward, value = (
        AutoModelForSequenceClassification.from_pretrained(job[name], dtype=torch.float32)
        for name in ("reward", "value")
    )
    return PPOTrainer(
        settings(job, folder),
        processing_class=words,
        model=policy,
        ref_model=reference,
        reward_model=reward,
        value_model=value,
        train_dataset=Dataset.from_dict({"input_ids": words(lines).input_ids}),
    )


def main() -> None:
    asked = job()
    torch.set_num_threads(asked["threads"])
    width = asked["prompt"] + asked["response"]
    timed = Timed((asked["batch"] // asked["minibatches"], width))
    with tempfile.TemporaryDirectory() as folder:
        ppo = trainer(asked, folder)
        ppo.add_callback(timed)
        ppo.model.register_forward_pre_hook(timed.before_forward, with_kwargs=True)
        ppo.train()
    report("trl", trl.__version__, timed.laps.iterations)


if __name__ == "__main__":
    main()
