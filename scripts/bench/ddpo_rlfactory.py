"""Timed DDPO iterations of rlfactory: one side of trl_ddpo.py."""

from pathlib import Path
from typing import Any

from network import NetworkCalls
from probe import Laps, job, peak_gib, report

from rlfactory import __version__
from rlfactory.config.overrides import plan_from_words
from rlfactory.model.image_base import PipelineModel
from rlfactory.rollout import Rollout
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import Metrics, NoProgress
from rlfactory.train.trainer import Trainer

PACKAGES = ["torch", "transformers", "diffusers", "peft"]
REWARD = Path(__file__).with_name("brightness.py")


def overrides(job: dict[str, Any]) -> list[str]:
    """The command line: TRL's preset, with the bench's model, reward and batches, in float32."""
    words = [
        "experiment=peer/trl_ddpo",
        "precision=fp32",
        "latent_storage=float32",
        "model.path={pipeline}",
        "model.finetune={finetune}",
        "model.size=64",
        "model.guidance={guidance}",
        "schedule.steps={steps}",
        "reward=image_function",
        f"reward.function={REWARD}:brightness",
        "prompts=file",
        "prompts.path={prompts}",
        "hardware=cpu",
        "hardware.threads={threads}",
        "iterations={iterations}",
        "prompts_per_iteration={samples}",
        "updates_per_iteration={updates}",
        "sample_batch={sample_rows}",
        "micro_batch={rows}",
    ]
    return [word.format(**job) for word in words] + job["more"]


def main() -> None:
    asked = job()
    config = plan_from_words(*overrides(asked)).config
    parts = build(config)
    assert isinstance(parts.model, PipelineModel)
    network, loaded, laps = NetworkCalls(parts.model.network), peak_gib(), Laps()

    def note(iteration: int, metrics: Metrics, rollout: Rollout) -> None:
        assert len(rollout) == asked["samples"]
        laps.end("learn")

    trainer = Trainer(parts, training_budget(config), NoProgress())
    trainer.run(note, before_learning=lambda: laps.lap("rollout"))
    more = {"asked": network.an_iteration(asked["iterations"]), "loaded_gib": loaded}
    report("rlfactory", __version__, laps.iterations, packages=PACKAGES, more=more)


if __name__ == "__main__":
    main()
