"""Timed GRPO iterations of TRL: the other side of `trl_ppo.py --algorithm grpo`."""

import tempfile
from pathlib import Path
from typing import Any

import torch
import trl
from datasets import Dataset
from probe import Laps, job, report
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

FASTEST = {
    **{"gradient_checkpointing": False, "bf16": False, "disable_tqdm": True},
    **{"report_to": "none", "save_strategy": "no", "dataloader_pin_memory": False},
}
"""How TRL runs; nothing of what is learned."""


class Timed(TrainerCallback):
    """Ends an iteration after so many optimizer steps."""

    def __init__(self, steps: int) -> None:
        self.laps, self.steps, self.taken = Laps(), steps, 0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.laps = Laps()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.taken += 1
        if self.taken % self.steps == 0:
            self.laps.end("iteration")


def settings(job: dict[str, Any], folder: str) -> GRPOConfig:
    """TRL's defaults for what is learned; for how it runs, the fastest settings."""
    return GRPOConfig(
        output_dir=folder,
        max_steps=job["iterations"] * job["epochs"] * job["minibatches"],
        per_device_train_batch_size=job["batch"] // job["minibatches"],
        gradient_accumulation_steps=1,
        steps_per_generation=job["minibatches"],
        num_iterations=job["epochs"],
        num_generations=job["group"],
        max_completion_length=job["response"],
        generation_kwargs={"min_new_tokens": job["response"]},
        logging_strategy="no",
        use_cpu=job.get("hardware", "cpu") == "cpu",
        **FASTEST,
    )


def by_length(completions: list[str], **_: Any) -> list[float]:
    """A reward that costs nothing and differs within a group."""
    return [float(len(set(text))) for text in completions]


def main() -> None:
    asked = job()
    torch.set_num_threads(asked["threads"])
    words = AutoTokenizer.from_pretrained(asked["policy"], padding_side="left")
    words.pad_token = words.pad_token or words.eos_token
    lines = Path(asked["prompts"]).read_text(encoding="utf-8").split("\n")
    timed = Timed(asked["epochs"] * asked["minibatches"])
    with tempfile.TemporaryDirectory() as folder:
        grpo = GRPOTrainer(
            AutoModelForCausalLM.from_pretrained(asked["policy"], dtype=torch.float32),
            reward_funcs=by_length,
            args=settings(asked, folder),
            train_dataset=Dataset.from_dict({"prompt": lines}),
            processing_class=words,
            callbacks=[timed],
        )
        grpo.train()
    report("trl", trl.__version__, timed.laps.iterations)


if __name__ == "__main__":
    main()
