"""Walks as a reward: the start is the prompt."""

import torch

from rlfactory.prompts.randomwalks import GOAL, NODES, RandomWalkPrompts, adjacency
from rlfactory.reward.base import Samples
from rlfactory.reward.randomwalks import RandomWalks


def test_prompt_and_completion_make_the_walk() -> None:
    near = next(n for n in range(1, len(NODES)) if adjacency()[n, GOAL])
    start, goal = NODES[near], NODES[GOAL]
    samples = Samples([start, start, ""], [{}] * 3, torch.arange(3), texts=[goal, "", start + goal])
    assert RandomWalks().score(samples)["optimality"].tolist() == [1.0, 0.0, 1.0]


def test_prompts_are_the_nodes_but_the_goal() -> None:
    prompts = RandomWalkPrompts()
    held = [prompt.text for prompt in prompts.held_out(40)]
    assert set(held) == set(NODES) - {NODES[GOAL]}
    drawn = [prompt.text for prompt in prompts.draw(20, seed=0, iteration=3)]
    assert sorted(drawn) == sorted(set(held))
