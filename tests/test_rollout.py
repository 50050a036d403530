from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rlfactory.rollout import Condition, Rollout, Tokens, Transitions
from rlfactory.utils.pytree import concat, index_rows


def make_rollout(count: int, steps: int = 2) -> Rollout:
    def rows(*shape: int) -> Tensor:
        return torch.arange(count * torch.Size(shape).numel()).float().view(count, *shape)

    return Rollout(
        prompts=[f"prompt {i}" for i in range(count)],
        metadata=[{"tag": i} for i in range(count)],
        groups=torch.arange(count) // 2,
        index=torch.arange(count),
        condition=Condition({"sequence": rows(3, 4), "pooled": rows(5)}),
        latents=rows(1, 2, 2),
        images=rows(3, 2, 2).to(torch.uint8),
        transitions=Transitions(
            rows(steps), rows(steps), rows(steps, 1, 2, 2), rows(steps, 1, 2, 2), rows(steps)
        ),
        rewards={"main": rows()},
        advantage=rows(),
    )


def assert_same(a: object, b: object) -> None:
    """Equality of nests, tensors by value."""
    assert type(a) is type(b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, dict) and isinstance(b, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif hasattr(a, "__dataclass_fields__"):
        for name in a.__dataclass_fields__:
            assert_same(getattr(a, name), getattr(b, name))
    else:
        assert a == b


@pytest.mark.parametrize("sizes", [[6], [1, 5], [2, 2, 2], [3, 1, 2]])
def test_join_undoes_take(sizes: list[int]) -> None:
    rollout = make_rollout(6)
    parts = [index_rows(rollout, rows) for rows in torch.arange(6).split(sizes)]
    assert [len(part) for part in parts] == sizes
    assert_same(concat(parts), rollout)


def test_take_picks_the_same_rows_everywhere_in_any_order_and_repeatedly() -> None:
    rollout = make_rollout(6)
    rows = torch.tensor([4, 1, 1])
    taken = rollout[rows]
    assert taken.prompts == ["prompt 4", "prompt 1", "prompt 1"]
    assert taken.metadata == [{"tag": 4}, {"tag": 1}, {"tag": 1}]
    assert taken.index.tolist() == [4, 1, 1]
    for name in ("sequence", "pooled"):
        want = rollout.condition.tensors[name][rows]
        assert torch.equal(taken.condition.tensors[name], want)
    assert taken.transitions is not None
    assert rollout.transitions is not None
    assert torch.equal(taken.transitions.next, rollout.transitions.next[rows])
    assert torch.equal(taken.rewards["main"], rollout.rewards["main"][rows])
    assert_same(
        index_rows(index_rows(rollout, torch.tensor([5, 3, 0])), torch.tensor([2, 0])),
        rollout[torch.tensor([0, 5])],
    )


def test_what_is_absent_stays_absent() -> None:
    bare = replace(make_rollout(4), transitions=None, advantage=None, rewards={})
    both = concat([bare[torch.arange(2)], bare[torch.arange(2, 4)]])
    assert both.transitions is None
    assert both.advantage is None
    assert both.rewards == {}


def ragged() -> Tokens:
    """Two prompts of 1 and 2 tokens, two responses of 3 and 1."""
    ids, flat = torch.arange(8).view(2, 4), torch.arange(8.0).view(2, 4)
    prompt_mask = torch.tensor([[False, False, False, True], [False, False, True, True]])
    mask = torch.arange(4) < torch.tensor([[3], [1]])
    return Tokens(ids, prompt_mask, ids, mask, torch.tensor([True, False]), flat, flat)


def test_a_part_is_as_wide_as_its_longest_texts() -> None:
    whole = ragged().measured()
    both, last = whole.part(slice(0, 2)), whole.part(slice(1, 2))
    assert (both.prompt.shape, both.response.shape) == ((2, 2), (2, 3))
    assert (last.prompt.tolist(), last.response.tolist()) == ([[6, 7]], [[4]])
    assert both.prompts_are_padded
    assert not last.prompts_are_padded
    assert (whole.count, both.count, last.count) == (4, 4, 1)


def test_whether_responses_ended_is_read_with_their_lengths() -> None:
    tokens = ragged()
    for part in (tokens, tokens.measured(), tokens.measured().part(slice(0, 2))):
        assert part.ended_on_cpu.tolist() == [True, False]


def test_real_tokens_are_those_of_the_mask() -> None:
    tokens = ragged()
    for part in (tokens, tokens.measured(), tokens.measured().part(slice(0, 2))):
        values = part.real(part.log_prob)
        assert torch.equal(values, part.log_prob[part.mask])
        assert torch.equal(part.pad(values), part.log_prob * part.mask)
    states = torch.rand(2, 4, 5)
    assert torch.equal(tokens.real(states), states[tokens.mask])
