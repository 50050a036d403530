"""Samples of the data: their tokens, ends and masks, whatever the batches."""

from pathlib import Path

import pytest
import torch

from rlfactory.algo.sft import SFT
from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.train.sampling.given import Completion, GivenSampler
from rlfactory.utils.pytree import require

PROMPTS = [Prompt("a", {"of": [" one", " two"]}), Prompt("It was", {"of": [" a long text", " x"]})]
GROUPS = torch.tensor([0, 0, 1, 1])


def listed(prompt: Prompt, member: int) -> tuple[str, str]:
    return prompt.text, prompt.metadata["of"][member]


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    return CausalLM(torch.device("cpu"), path=str(gpt2_folder))


def given(model: CausalLM, completion: Completion, batch: int = 100) -> GivenSampler:
    options = {"dynamics": Token(length=6), "batch": batch, "advance": lambda count: None}
    return GivenSampler(model, completion=completion, length=6, **options)


def sampler(model: CausalLM, batch: int = 100) -> GivenSampler:
    return given(model, listed, batch)


def test_members_of_a_group_get_their_own_completions(model: CausalLM) -> None:
    rollout = sampler(model).rollout(PROMPTS, GROUPS, seed=0, iteration=0)
    assert rollout.texts == [" one", " two", " a lon", " x"]
    assert rollout.prompts == ["a", "a", "It was", "It was"]
    tokens = require(rollout.tokens, "tokens")
    assert tokens.ended.tolist() == [True, True, False, True]
    assert tokens.mask.sum(1).tolist() == [5, 5, 6, 3]
    ends = tokens.response[torch.arange(4), tokens.mask.sum(1) - 1] == model.tokenizer.eos_token_id
    assert ends.tolist() == [True, True, False, True]


@pytest.mark.parametrize("batch", [1, 3])
def test_batching_changes_nothing(model: CausalLM, batch: int) -> None:
    one = sampler(model).rollout(PROMPTS, GROUPS, seed=0, iteration=0)
    other = sampler(model, batch).rollout(PROMPTS, GROUPS, seed=5, iteration=3)
    a, b = require(one.tokens, "tokens"), require(other.tokens, "tokens")
    assert torch.equal(a.response, b.response)
    assert torch.equal(a.prompt, b.prompt)
    assert torch.equal(a.mask, b.mask)


def test_a_rank_takes_its_own_rows(model: CausalLM) -> None:
    rows = torch.tensor([2, 3])
    (part,) = sampler(model).batches(PROMPTS, GROUPS, seed=0, iteration=0, rows=rows)
    assert part.texts == [" a lon", " x"]
    assert part.index.tolist() == [2, 3]


def test_evaluations_are_drawn_from_the_policy(model: CausalLM) -> None:
    drawn = sampler(model).draw(["a", "a"], seed=0, stream="evaluation")
    assert len({*(drawn.texts or [])}) == 2
    assert drawn.ended is not None


def test_rollouts_of_the_policy_are_drawn(model: CausalLM) -> None:
    rollout = sampler(model).of_policy.rollout(PROMPTS, GROUPS, seed=0, iteration=0)
    assert not {*(rollout.texts or [])} & {" one", " two", " x"}


def test_all_rows_are_checked_before_a_run(model: CausalLM) -> None:
    rows = [Prompt("a", {"completion": "b"}), Prompt("c", {})]
    with pytest.raises(PromptError, match="'c'.*'completion' must be a text"):
        given(model, SFT().completion).check_rows(rows)
    given(model, SFT().completion).of_policy.check_rows(rows)


THOUGHT = [
    Prompt("2 + 2 =", {"completion": "<think>four?</think> 4"}),
    Prompt("Hello, 9 - 4 =", {"completion": " 5"}),
    Prompt("x", {"completion": "a</think>b</think>c"}),
]


def answers(model: CausalLM, algo: SFT, length: int | None = None) -> GivenSampler:
    options = {"dynamics": Token(length=6), "batch": 2, "advance": lambda count: None}
    options["answers_alone"] = algo.learns_answers_alone
    return GivenSampler(model, completion=algo.completion, length=length, **options)


def test_thoughts_are_given_and_not_learned(model: CausalLM) -> None:
    groups = torch.arange(3)
    whole, alone = (
        require(
            answers(model, SFT(train_on=kind)).rollout(THOUGHT, groups, seed=0, iteration=0).tokens,
            "tokens",
        )
        for kind in ("completion", "answer")
    )
    learned = [" 4", " 5", "b</think>c"]
    assert model.texts(alone) == learned
    given = ["2 + 2 =<think>four?</think>", "Hello, 9 - 4 =", "xa</think>"]
    for row, text in enumerate(given):
        ids = alone.prompt[row][alone.prompt_mask[row]]
        assert model.tokenizer.decode(ids, skip_special_tokens=True) == text
        # the network reads the same tokens
        both = [
            torch.cat([t.prompt[row][t.prompt_mask[row]], t.response[row][t.mask[row]]])
            for t in (whole, alone)
        ]
        assert torch.equal(*both)
    assert alone.ended.tolist() == whole.ended.tolist()
    # left and right padding are as everywhere
    assert alone.prompt_mask.long().diff(dim=1).min() >= 0
    assert alone.mask.long().diff(dim=1).max() <= 0


def test_thoughts_without_an_answer_are_an_error(model: CausalLM) -> None:
    algo = SFT(train_on="answer")
    answers(model, algo).check_rows(THOUGHT)
    with pytest.raises(PromptError, match=r"'2 \+ 2 =': of its completion's 8 tokens"):
        answers(model, algo, 8).check_rows(THOUGHT)
    answers(model, SFT(), 8).check_rows(THOUGHT)
