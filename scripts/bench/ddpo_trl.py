"""Timed DDPO iterations of TRL: the other side of trl_ddpo.py, run in TRL's environment."""

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
import trl
from accelerate import PartialState
from brightness import brightness
from network import NetworkCalls
from probe import Laps, job, peak_gib, report
from trl import DDPOConfig, DDPOTrainer, DefaultDDPOStableDiffusionPipeline

PACKAGES = ["torch", "transformers", "diffusers", "accelerate", "peft"]


class Timed(DDPOTrainer):
    """Times rollouts until learning starts: rewards, advantages and shuffling included."""

    laps: Laps

    def _train_batched_samples(self, *position: Any) -> int:
        self.laps.lap("rollout")
        reached: int = super()._train_batched_samples(*position)
        self.laps.end("learn")
        return reached


def settings(job: dict[str, Any]) -> DDPOConfig:
    """TRL's defaults for what is learned; `rows` samples at once, as far as it allows."""
    an_update = job["samples"] // job["updates"]
    rows = min(job["rows"], an_update)
    return DDPOConfig(
        num_epochs=job["iterations"],
        mixed_precision="no",
        save_freq=job["iterations"] + 1,
        sample_num_steps=job["steps"],
        sample_guidance_scale=job["guidance"],
        sample_batch_size=job["sample_rows"],
        sample_num_batches_per_epoch=job["samples"] // job["sample_rows"],
        train_batch_size=rows,
        train_gradient_accumulation_steps=an_update // rows,
        train_cfg=job["guidance"] > 1,
    )


def prompts(path: str) -> Callable[[], tuple[str, dict[str, Any]]]:
    """A function that returns the lines of a file in turn, repeatedly."""
    lines: Iterator[str] = cycle(Path(path).read_text(encoding="utf-8").splitlines())
    return lambda: (next(lines), {})


def main() -> None:
    asked = job()
    torch.set_num_threads(asked["threads"])
    PartialState()  # without it the pipeline fails when it warns that it has no adapters
    lora = asked["finetune"] == "lora"
    pipeline = DefaultDDPOStableDiffusionPipeline(asked["pipeline"], use_lora=lora)
    trainer = Timed(settings(asked), brightness, prompts(asked["prompts"]), pipeline)
    pipeline.set_progress_bar_config(disable=True)
    network, loaded = NetworkCalls(pipeline.unet), peak_gib()
    trainer.laps = Laps()
    trainer.train()
    more = {"asked": network.an_iteration(asked["iterations"]), "loaded_gib": loaded}
    report("trl", trl.__version__, trainer.laps.iterations, packages=PACKAGES, more=more)


if __name__ == "__main__":
    main()
