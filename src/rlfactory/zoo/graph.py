"""A small directed graph whose nodes are letters: the task of finding short ways to `a`.

The task is trlx's `randomwalks` (CarperAI/trlx, examples/randomwalks): 21 nodes, walks of at most
ten, one goal. A language model that has seen random walks learns by reward to walk straight.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path

NODES = "abcdefghijklmnopqrstu"
GOAL = 0
LONGEST = 10  # nodes in a walk, the first and the goal included
_EDGE = 0.1
_SEED = 1002


@cache
def adjacency() -> NDArray[np.bool_]:
    """`[21, 21]`: whether one may step from row to column; from everywhere the goal is in reach."""
    rng = np.random.default_rng(_SEED)
    while True:
        edges = rng.random((len(NODES), len(NODES))) < _EDGE
        np.fill_diagonal(edges, False)
        edges[GOAL] = False  # a walk ends there
        if bool((_distances(edges) < LONGEST).all()):
            return edges


@cache
def best_lengths() -> NDArray[np.int64]:
    """For each node the nodes of its shortest walk to the goal, itself and the goal included."""
    return _distances(adjacency()).astype(np.int64) + 1


def _distances(edges: NDArray[np.bool_]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = shortest_path(edges.T, unweighted=True, indices=GOAL)
    return found


def walk_length(walk: str) -> int | None:
    """The nodes of a walk up to the goal; None where it steps off the graph or never arrives."""
    for i, letter in enumerate(walk[:LONGEST]):
        node = NODES.find(letter)
        if node < 0 or (i > 0 and not adjacency()[NODES.index(walk[i - 1]), node]):
            return None
        if node == GOAL:
            return i + 1
    return None


def optimality(walk: str) -> float:
    """1 for a shortest walk, falling to 0 for one that takes ten nodes or does not arrive."""
    if not walk or walk[0] not in NODES[1:]:
        return 0.0
    length, best = walk_length(walk) or LONGEST, int(best_lengths()[NODES.index(walk[0])])
    return (LONGEST - length) / (LONGEST - best)


def random_walks(count: int, rng: np.random.Generator) -> list[str]:
    """Walks of at most ten nodes from any node but the goal, each step to any neighbour."""
    edges = adjacency()
    walks = []
    for start in rng.integers(1, len(NODES), count):
        nodes = [int(start)]
        while len(nodes) < LONGEST and nodes[-1] != GOAL and edges[nodes[-1]].any():
            nodes.append(int(rng.choice(np.flatnonzero(edges[nodes[-1]]))))
        walks.append("".join(NODES[node] for node in nodes))
    return walks
