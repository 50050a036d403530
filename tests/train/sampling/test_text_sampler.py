"""Texts keyed by their number, whatever the batches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.text_base import response_log_prob
from rlfactory.prompts.base import Prompt
from rlfactory.train.sampling.text_sampler import TextSampler
from rlfactory.utils import rng
from rlfactory.utils.errors import TrainingError
from rlfactory.utils.pytree import concat, require

PROMPTS = [Prompt("a", {"n": 0}), Prompt("It was", {"n": 1})]
GROUPS = torch.tensor([0, 0, 0, 1, 1, 1])


@pytest.fixture
def sampler(gpt2_folder: Path) -> Callable[..., TextSampler]:
    model = CausalLM(torch.device("cpu"), path=str(gpt2_folder))

    def make(batch: int = 100, advance: Callable[[int], None] = lambda count: None) -> TextSampler:
        return TextSampler(model, dynamics=Token(length=10), batch=batch, advance=advance)

    return make


def test_batching_changes_nothing(sampler: Callable[..., TextSampler]) -> None:
    counts: list[int] = []
    whole = sampler().rollout(PROMPTS, GROUPS, seed=0, iteration=2)
    parts = sampler(4, counts.append).rollout(PROMPTS, GROUPS, seed=0, iteration=2)
    one, other = require(whole.tokens, "tokens"), require(parts.tokens, "tokens")
    assert counts == [4, 2]
    assert torch.equal(one.response, other.response)
    torch.testing.assert_close(one.log_prob, other.log_prob, atol=1e-5, rtol=1e-5)
    assert whole.texts == parts.texts


def test_samples_of_a_prompt_differ_and_so_do_iterations(
    sampler: Callable[..., TextSampler],
) -> None:
    rollout = sampler().rollout(PROMPTS, GROUPS, seed=0, iteration=0)
    assert len(set(rollout.texts or [])) == 6
    assert rollout.prompts == ["a"] * 3 + ["It was"] * 3
    assert [row["n"] for row in rollout.metadata] == [0, 0, 0, 1, 1, 1]
    assert sampler().rollout(PROMPTS, GROUPS, seed=0, iteration=1).texts != rollout.texts
    assert sampler().rollout(PROMPTS, GROUPS, seed=1, iteration=0).texts != rollout.texts


def test_what_is_drawn_to_be_judged_is_always_the_same(
    sampler: Callable[..., TextSampler],
) -> None:
    one = sampler().draw(["a"] * 4, seed=0, stream="evaluation").texts
    assert one == sampler(3).draw(["a"] * 4, seed=0, stream="evaluation").texts
    assert one != sampler().draw(["a"] * 4, seed=0, stream="other").texts


def test_weights_that_have_diverged_are_told(sampler: Callable[..., TextSampler]) -> None:
    diverged = sampler()
    assert isinstance(diverged.model, CausalLM)
    with torch.no_grad():
        for weight in diverged.model.network.parameters():
            weight.fill_(1e30)
    with pytest.raises(TrainingError, match="logits are not finite: its weights have diverged"):
        diverged.rollout(PROMPTS, GROUPS, seed=0, iteration=0)


def draws(count: int) -> torch.Tensor:
    return rng.uniform(0, "", [], list(range(count)), [10])


@pytest.mark.parametrize("options", [{}, {"top_k": 5}])
def test_a_text_is_compared_with_the_reference(gpt2_folder: Path, options: dict[str, int]) -> None:
    model = CausalLM(torch.device("cpu"), path=str(gpt2_folder))
    sampler = TextSampler(
        model, dynamics=Token(length=10, **options), batch=3, advance=lambda count: None
    )
    assert sampler.draw(["a"], seed=0, stream="").kl is None
    model.weights.add("reference")
    at_first = require(sampler.draw(["a"] * 8, seed=0, stream="").kl, "kl")
    torch.testing.assert_close(at_first, torch.zeros(8), atol=1e-4, rtol=0)
    for parameter in model.weights.parameters.values():
        parameter.data.mul_(0.8)
    moved = sampler.draw(["a"] * 64, seed=0, stream="")
    # unbiased without truncation, and 64 samples tell it from 0
    assert options or require(moved.kl, "kl").mean() > 0.1
    assert require(moved.kl, "kl").abs().max() > 0.1
    assert require(moved.lengths, "lengths").max() <= 10
    # the divergence is what the policy's own log-probability exceeds the reference's by
    tokens = concat([*sampler._tokens(["a"] * 64, torch.arange(64), draws(64))])
    own, reference = (
        response_log_prob(model, name, tokens, sampler.dynamics, 64).sum(1)
        for name in (model.weights.in_use, "reference")
    )
    torch.testing.assert_close(require(moved.reference_log_prob, "reference"), reference)
    torch.testing.assert_close(require(moved.kl, "kl"), own - reference, atol=1e-3, rtol=0)
    with model.weights("reference"):
        itself = require(sampler.draw(["a"] * 8, seed=0, stream="").kl, "kl")
    torch.testing.assert_close(itself, torch.zeros(8), atol=1e-4, rtol=0)


def test_prompts_of_like_length_are_drawn_together(
    sampler: Callable[..., TextSampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [Prompt(text, {}) for text in ("It was a film", "a", "It was", "b")]
    groups = torch.arange(4).repeat_interleave(2)
    whole = sampler().rollout(prompts, groups, seed=0, iteration=0)
    widths: list[int] = []
    rollout = CausalLM.rollout

    def noted(self: CausalLM, prompt: torch.Tensor, *rest: Any) -> Any:
        widths.append(prompt.shape[1])
        return rollout(self, prompt, *rest)

    monkeypatch.setattr(CausalLM, "rollout", noted)
    parts = [*sampler(3).batches(prompts, groups, seed=0, iteration=0)]
    # an end of text comes before each prompt
    assert widths == [2, 7, 14]
    assert [part.index.tolist() for part in parts] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [text for part in parts for text in part.texts or []] == whole.texts
    one, other = require(whole.tokens, "tokens"), require(concat(parts).tokens, "tokens")
    assert torch.equal(one.prompt, other.prompt)
    assert torch.equal(one.response, other.response)
    torch.testing.assert_close(one.log_prob, other.log_prob, atol=1e-5, rtol=1e-5)
