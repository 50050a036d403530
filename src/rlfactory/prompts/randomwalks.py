"""Start nodes of walks on trlx's graph (CarperAI/trlx, examples/randomwalks)."""

from rlfactory.prompts.base import Prompt, Prompts, item_indices
from rlfactory.prompts.ops.walk_graph import GOAL, NODES

_STARTS = [node for i, node in enumerate(NODES) if i != GOAL]


class RandomWalkPrompts(Prompts):
    """The letters of all nodes but the goal, in turn."""

    metadata = ()
    separate = False
    features = ()
    media = "texts"
    longest_tokens = 2

    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` start nodes, shuffled without replacement, repeated only if there are too few."""
        chosen = item_indices(len(_STARTS), count, seed=seed, iteration=iteration)
        return [Prompt(_STARTS[i], {}) for i in chosen]

    def held_out(self, count: int) -> list[Prompt]:
        """`count` start nodes in order, cyclically; none is held out, since there are 20 in all."""
        return [Prompt(_STARTS[i % len(_STARTS)], {}) for i in range(count)]
