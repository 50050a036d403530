"""Builds the rewards of an experiment, and what scores with them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from rlfactory.config.schema.targets import instantiate, locate
from rlfactory.hardware.torch_defaults import kept_defaults
from rlfactory.model.memory import OffloadedModules
from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, RewardError, Samples, require_videos, score_checked
from rlfactory.train.sampling.base import Advance
from rlfactory.train.scoring.async_scorer import Scorer, networks_of
from rlfactory.utils.dotted_keys import Config
from rlfactory.utils.images import evenly_spaced


def reward_device(config: Config, default: torch.device) -> torch.device:
    """The device of rewards; RewardError if it does not exist."""
    name = config["scoring"]["device"]
    if name is None:
        return default
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # AssertionError: torch without CUDA
        reason = str(error).splitlines()[0]
        raise RewardError(f"scoring.device={name} can't be used: {reason}") from error


def build_scorer(
    config: Config, rewards: list[Reward], device: torch.device, advance: Advance
) -> Scorer:
    """A scorer of rollouts, in the background or not; the networks of rewards are offloaded."""
    scoring, offloader = config["scoring"], None
    if scoring["offload"]:
        offloader = OffloadedModules(networks_of(rewards), device)
        offloader.offload()
    # a subprocess has the timeout itself, and is replaced
    timeout = scoring["timeout"] if scoring["background"] == "thread" else None
    return Scorer(scoring["background"] != "none", timeout, offloader, advance)


def build_rewards(config: Config, device: torch.device) -> tuple[Reward, dict[str, Reward]]:
    """The reward that trains, and those that score evaluation samples only, by name.

    Rewards with equal configurations are one object, so that its networks are loaded once.
    """
    built: dict[str, Reward] = {}

    videos = getattr(locate(config["model"]["_target_"], "model"), "media", None) == "videos"

    def build_one(node: Config, key: str) -> Reward:
        if "parts" in node:
            parts = {n: build_one(part, f"{key}.parts.{n}") for n, part in node["parts"].items()}
            return instantiate({**node, "parts": parts}, key, device=device)
        frozen = json.dumps(node, sort_keys=True, default=str)
        if frozen not in built:
            single = _single_reward(config, node, key, device)
            of_frames = videos and single.media == "images"
            built[frozen] = FrameMean(single, config["scoring"]["frames"]) if of_frames else single
        return built[frozen]

    others = config["eval_rewards"]["parts"]
    trained = build_one(config["reward"], "reward")
    return trained, {n: build_one(part, f"eval_rewards.parts.{n}") for n, part in others.items()}


def _single_reward(config: Config, node: Config, key: str, device: torch.device) -> Reward:
    """A reward that has no parts, in a subprocess if its class or the configuration wants one."""
    scoring = config["scoring"]
    in_subprocess = scoring["background"] == "process"
    if scoring["background"] == "thread":
        in_subprocess = getattr(locate(node["_target_"], key), "wants_subprocess", False)
    if in_subprocess:
        from rlfactory.train.scoring.subprocess_reward import SubprocessReward

        timeout, processes = scoring["timeout"], scoring["processes"]
        return SubprocessReward(node, key, device, timeout=timeout, processes=processes)
    with kept_defaults():
        reward: Reward = instantiate(node, key, device=device)
    return reward


class FrameMean(Reward):
    """Each score of an image reward, averaged over `frames` evenly spaced frames of a video.

    The first and the last frame are among them. A video has the scores of those of its frames that
    have one, and NaN without any.
    """

    media = "videos"

    def __init__(self, reward: Reward, frames: int) -> None:
        self.reward, self.frames = reward, frames
        self.main = reward.main
        self.metadata, self.better = reward.metadata, reward.better  # type: ignore[misc]
        self.best_score = reward.best_score  # type: ignore[misc]

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        self.reward.check_prompts(prompts)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        videos = require_videos(samples)
        chosen = evenly_spaced(videos.shape[1], self.frames)
        count = len(chosen)
        images = Samples(
            prompts=[prompt for prompt in samples.prompts for _ in range(count)],
            metadata=[row for row in samples.metadata for _ in range(count)],
            groups=samples.groups.repeat_interleave(count),
            images=videos[:, chosen].flatten(0, 1),
        )
        scores = score_checked(self.reward, images)
        return {name: values.view(-1, count).nanmean(1) for name, values in scores.items()}

    def state_dict(self) -> dict[str, Any]:
        return self.reward.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.reward.load_state_dict(state)
