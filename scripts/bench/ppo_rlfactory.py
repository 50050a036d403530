"""Timed PPO or GRPO iterations of rlfactory: one side of trl_ppo.py; memory.py measures it too."""

from typing import Any

from probe import Laps, job, report

from rlfactory import __version__
from rlfactory.config.overrides import plan_from_words
from rlfactory.rollout import Rollout
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import Metrics, NoProgress
from rlfactory.train.trainer import Trainer
from rlfactory.utils.pytree import require

CRITICS = {
    "shared": [],
    "separate": ["model.value_path={value}"],
    "none": [
        *("algo=grpo_token", "regularizer=none", "group_size={group}", "algo.value_weight=0"),
        "model.value_head=linear",
    ],
}
REWARDS = {
    True: ["reward=reward_model", "reward.path={reward}"],
    False: ["reward=length"],
}


def overrides(job: dict[str, Any]) -> list[str]:
    """The command line: TRL's preset with its batch and lengths, responses of full length."""
    words = [
        "experiment=trl_v2",
        "model.path={policy}",
        "model.begin_with_end=false",
        *REWARDS["reward" in job],
        "prompts=file",
        "prompts.path={prompts}",
        "hardware={hardware}",
        "hardware.threads={threads}",
        "dynamics.length={response}",
        "dynamics.stop_at_end=false",
        "algo.missing_end=none",
        "iterations={iterations}",
        "prompts_per_iteration={prompts_at_once}",
        "sample_batch={batch}",
        *([] if job["critic"] == "none" else ["regularizer.micro_batch={batch}"]),
        "epochs={epochs}",
        "updates_per_iteration={minibatches}",
        *CRITICS[job["critic"]],
    ]
    at_once = job["batch"] // (job["group"] if job["critic"] == "none" else 1)
    return [
        word.format(**{"hardware": "cpu", "prompts_at_once": at_once, **job}) for word in words
    ] + job["more"]


def main() -> None:
    asked = job()
    config = plan_from_words(*overrides(asked)).config

    def note(iteration: int, metrics: Metrics, rollout: Rollout) -> None:
        tokens = require(rollout.tokens, "tokens")
        assert tokens.prompt.shape == (asked["batch"], asked["prompt"])
        assert tokens.mask.sum() == asked["batch"] * asked["response"]
        laps.end("learn")

    trainer = Trainer(build(config), training_budget(config), NoProgress())
    laps = Laps()
    trainer.run(note, before_learning=lambda: laps.lap("rollout"))
    report("rlfactory", __version__, laps.iterations)


if __name__ == "__main__":
    main()
