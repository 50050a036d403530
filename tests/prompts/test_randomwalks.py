"""The graph of trlx's task: walks, the shortest of them, and what a walk is worth."""

from collections import deque
from pathlib import Path

import numpy as np
import pytest

from rlfactory.prompts.randomwalks import (
    GOAL,
    LONGEST,
    NODES,
    adjacency,
    best_lengths,
    optimality,
    walk_length,
)

from ..load_script import load_script

random_walks = load_script(Path(__file__).parents[2] / "scripts/zoo/randomwalks.py").random_walks


def shortest(start: int) -> list[int]:
    """A shortest walk to the goal by breadth-first search."""
    queue, seen = deque([[start]]), {start}
    while queue:
        walk = queue.popleft()
        if walk[-1] == GOAL:
            return walk
        for node in map(int, np.flatnonzero(adjacency()[walk[-1]])):
            if node not in seen:
                seen.add(node)
                queue.append([*walk, node])
    raise AssertionError(f"no way from {start}")


def named(walk: list[int]) -> str:
    return "".join(NODES[node] for node in walk)


@pytest.mark.parametrize("start", range(1, len(NODES)))
def test_a_shortest_walk_is_worth_one(start: int) -> None:
    walk = shortest(start)
    assert len(walk) == best_lengths()[start] <= LONGEST
    assert walk_length(named(walk)) == len(walk)
    assert optimality(named(walk)) == 1.0


def test_detours_and_failures_are_worth_less() -> None:
    detours = [w for w in random_walks(500, np.random.default_rng(0)) if walk_length(w)]
    for walk in detours:
        best = best_lengths()[NODES.index(walk[0])]
        expected = (LONGEST - len(walk)) / (LONGEST - best)
        assert optimality(walk) == pytest.approx(expected)
    assert any(0 < optimality(walk) < 1 for walk in detours)
    far = next(n for n in range(1, len(NODES)) if not adjacency()[n, GOAL])
    assert optimality(NODES[far] + NODES[GOAL]) == 0, "it steps off the graph"
    assert optimality(NODES[far]) == 0, "it never arrives"
    assert optimality("") == optimality("?a") == optimality(NODES[GOAL]) == 0


def test_random_walks_follow_edges_and_end_at_the_goal() -> None:
    for walk in random_walks(300, np.random.default_rng(1)):
        nodes = [NODES.index(letter) for letter in walk]
        assert all(adjacency()[a, b] for a, b in zip(nodes, nodes[1:], strict=False))
        assert GOAL not in nodes[:-1]
        assert len(nodes) <= LONGEST
