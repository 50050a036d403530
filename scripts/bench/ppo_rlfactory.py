"""Timed PPO iterations of rlfactory: one side of trl_ppo.py, and what memory.py measures."""

from typing import Any

from probe import job, report

from rlfactory import __version__
from rlfactory.build import budget, build
from rlfactory.nest import present
from rlfactory.parts import Metrics, Silent
from rlfactory.request import planned
from rlfactory.rollout import Rollout
from rlfactory.trainer import Trainer

CRITICS = {
    "shared": [],
    "separate": ["model.value_path={value}"],
}
REWARDS = {
    True: ["reward=reward_model", "reward.path={reward}"],
    False: ["reward=length"],
}


def overrides(job: dict[str, Any]) -> list[str]:
    """What one would type: TRL's preset, with its batch and lengths, and no end of text."""
    words = [
        "experiment=trl_v2",
        "model.path={policy}",
        "model.begin_with_end=false",
        *CRITICS[job["critic"]],
        *REWARDS["reward" in job],
        "prompts=file",
        "prompts.path={prompts}",
        "hardware=cpu",
        "hardware.threads={threads}",
        "dynamics.length={response}",
        "dynamics.stop_at_end=false",
        "algo.missing_end=none",
        "iterations={iterations}",
        "prompts_per_iteration={batch}",
        "sample_batch={batch}",
        "regularizer.micro_batch={batch}",
        "epochs={epochs}",
        "updates_per_iteration={minibatches}",
    ]
    return [word.format(**job) for word in words] + job["more"]


def main() -> None:
    asked = job()
    config = planned(*overrides(asked)).config
    iterations = []

    def note(iteration: int, metrics: Metrics, rollout: Rollout) -> None:
        tokens = present(rollout.tokens, "tokens")
        assert tokens.prompt.shape == (asked["batch"], asked["prompt"])
        assert tokens.mask.sum() == asked["batch"] * asked["response"]
        sample, score, learn = (metrics[f"time/{name}"] for name in ("sample", "score", "learn"))
        iterations.append({"rollout": sample + score, "learn": learn})

    Trainer(build(config), budget(config), Silent()).run(note)
    report("rlfactory", __version__, iterations)


if __name__ == "__main__":
    main()
