"""Start nodes of walks on a graph: trlx's `randomwalks` (CarperAI/trlx, examples/randomwalks).

The graph is directed and has 21 nodes, named by letters; a walk of at most ten nodes should reach
the goal `a` in as few steps as possible. A language model trained on random walks learns shortest
walks by RL.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path

from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.prompt_list import PromptList

NODES = "abcdefghijklmnopqrstu"
GOAL = 0
LONGEST = 10  # nodes in a walk, including the first and the goal
_EDGE = 0.1  # probability of each directed edge
_SEED = 1002


@cache
def adjacency() -> NDArray[np.bool_]:
    """`[21, 21]`: whether there is an edge from row to column. All nodes can reach the goal."""
    rng = np.random.default_rng(_SEED)
    while True:
        edges = rng.random((len(NODES), len(NODES))) < _EDGE
        np.fill_diagonal(edges, False)
        edges[GOAL] = False  # walks end at the goal
        if bool((_distances(edges) < LONGEST).all()):
            return edges


@cache
def best_lengths() -> NDArray[np.int64]:
    """`[21]`: the number of nodes in the shortest walk to the goal, including start and goal."""
    return _distances(adjacency()).astype(np.int64) + 1


def _distances(edges: NDArray[np.bool_]) -> NDArray[np.float64]:
    # on the transposed graph, the distances from the goal are those to the goal
    return shortest_path(edges.T, unweighted=True, indices=GOAL)


def walk_length(walk: str) -> int | None:
    """The number of nodes up to the goal; None where a step has no edge or it misses the goal."""
    for i, letter in enumerate(walk[:LONGEST]):
        node = NODES.find(letter)
        if node < 0 or (i > 0 and not adjacency()[NODES.index(walk[i - 1]), node]):
            return None
        if node == GOAL:
            return i + 1
    return None


def optimality(walk: str) -> float:
    """1 for a shortest walk, falling linearly to 0 for ten nodes; 0 where it misses the goal."""
    if not walk or walk[0] not in NODES[1:]:
        return 0.0
    length, best = walk_length(walk) or LONGEST, int(best_lengths()[NODES.index(walk[0])])
    return (LONGEST - length) / (LONGEST - best)


class RandomWalkPrompts(PromptList):
    """The letters of all nodes but the goal, in turn."""

    metadata = ()
    separate = False
    features = ()
    media = "texts"
    longest_tokens = 2

    def __init__(self) -> None:
        super().__init__([Prompt(node, {}) for i, node in enumerate(NODES) if i != GOAL])

    def held_out(self, count: int) -> list[Prompt]:
        """`count` start nodes in order, cyclically; none is held out, since there are 20 in all."""
        return [self.prompts[i % len(self.prompts)] for i in range(count)]
