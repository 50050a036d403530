"""Where a walk on the graph begins."""

from rlfactory.prompts.base import Prompt, Prompts
from rlfactory.prompts.sampler import item_indices
from rlfactory.zoo.graph import GOAL, NODES

_STARTS = [node for i, node in enumerate(NODES) if i != GOAL]


class RandomWalkPrompts(Prompts):
    """Every node but the goal, in turn."""

    metadata = ()

    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` starts, each as often as the others or once more."""
        chosen = item_indices(len(_STARTS), count, seed=seed, iteration=iteration)
        return [Prompt(_STARTS[i], {}) for i in chosen]

    def held_out(self, count: int) -> list[Prompt]:
        """`count` starts in turn; a task this small holds none back."""
        return [Prompt(_STARTS[i % len(_STARTS)], {}) for i in range(count)]
