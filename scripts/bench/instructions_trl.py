"""GRPO of SmolLM2 on `prompts=instructions` by TRL, with the settings of `rlfactory sweep smollm2`.

    python scripts/bench/instructions_trl.py SMOLLM2 --seed 0 --to FOLDER

In an environment with `trl`, and this project's `src` on the path for its prompts and its reward.
FOLDER gets the merged model, whose score before training is that of TRL's policy:

    rlfactory model=smollm2 model.path=FOLDER iterations=1 WORDS_OF_THE_SWEEP

The last line says the seconds of each iteration and the peak memory.
"""

import argparse
import json
from typing import Any

import torch
import trl
from datasets import Dataset
from grpo_trl import FASTEST, Timed
from peft import LoraConfig
from probe import report
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from rlfactory.prompts.instructions import InstructionsPrompts
from rlfactory.reward.base import Samples
from rlfactory.reward.instructions import Instructions

UPDATES, GROUPS, GROUP = 2, 8, 8
"""Optimizer steps, prompts and completions of each in an iteration."""
MICRO_BATCH = 16


def settings(folder: str, seed: int, iterations: int) -> GRPOConfig:
    """Those of the sweep."""
    return GRPOConfig(
        output_dir=folder,
        seed=seed,
        max_steps=iterations * UPDATES,
        per_device_train_batch_size=MICRO_BATCH,
        gradient_accumulation_steps=GROUPS * GROUP // UPDATES // MICRO_BATCH,
        steps_per_generation=GROUPS * GROUP // MICRO_BATCH,
        num_generations=GROUP,
        max_completion_length=24,
        temperature=1.0,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        beta=0.04,
        logging_steps=UPDATES,
        use_cpu=True,
        **FASTEST,
    )


def fulfilled(prompts: Any, completions: Any, constraints: Any, **_: Any) -> list[float]:
    """The reward of each completion, by this project's code."""
    samples = Samples(
        prompts=[messages[-1]["content"] for messages in prompts],
        metadata=[{"constraints": json.loads(each)} for each in constraints],
        groups=torch.arange(len(prompts)) // GROUP,
        texts=[messages[0]["content"] for messages in completions],
    )
    found: list[float] = Instructions().score(samples)["instructions"].tolist()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("policy", help="the folder of SmolLM2-135M-Instruct")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--to", required=True)
    asked = parser.parse_args()
    prompts = InstructionsPrompts().prompts
    rows = {
        "prompt": [[{"role": "user", "content": prompt.text}] for prompt in prompts],
        # as a text: a table has one type of values
        "constraints": [json.dumps(prompt.metadata["constraints"]) for prompt in prompts],
    }
    timed = Timed(UPDATES)
    grpo = GRPOTrainer(
        AutoModelForCausalLM.from_pretrained(asked.policy, dtype=torch.float32),
        reward_funcs=fulfilled,
        args=settings(asked.to, asked.seed, asked.iterations),
        train_dataset=Dataset.from_dict(rows),
        processing_class=AutoTokenizer.from_pretrained(asked.policy, padding_side="left"),
        peft_config=LoraConfig(r=16, lora_alpha=32, task_type="CAUSAL_LM"),
        callbacks=[timed],
    )
    grpo.train()
    grpo.model.merge_and_unload().save_pretrained(asked.to)
    grpo.processing_class.save_pretrained(asked.to)
    report("trl", trl.__version__, timed.laps.iterations)


if __name__ == "__main__":
    main()
