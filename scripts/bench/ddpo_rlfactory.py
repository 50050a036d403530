"""Timed DDPO iterations of rlfactory: one side of trl_ddpo.py."""

from pathlib import Path
from typing import Any

from network import Asked
from probe import Laps, job, peak_gib, report

from rlfactory import __version__
from rlfactory.build import budget, build
from rlfactory.model.pipeline_model import PipelineModel
from rlfactory.parts import Metrics, Silent
from rlfactory.request import planned
from rlfactory.rollout import Rollout
from rlfactory.trainer import Trainer

PACKAGES = ["torch", "transformers", "diffusers", "peft"]
REWARD = Path(__file__).with_name("brightness.py")


def overrides(job: dict[str, Any]) -> list[str]:
    """What one would type: TRL's preset, with its own model, reward and batches, in float32."""
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
    config = planned(*overrides(asked)).config
    parts = build(config)
    assert isinstance(parts.model, PipelineModel)
    network, loaded, laps = Asked(parts.model.network), peak_gib(), Laps()

    def note(iteration: int, metrics: Metrics, rollout: Rollout) -> None:
        assert len(rollout) == asked["samples"]
        laps.end("learn")

    trainer = Trainer(parts, budget(config), Silent())
    trainer.run(note, before_learning=lambda: laps.lap("rollout"))
    more = {"asked": network.an_iteration(asked["iterations"]), "loaded_gib": loaded}
    report("rlfactory", __version__, laps.iterations, packages=PACKAGES, more=more)


if __name__ == "__main__":
    main()
