"""Responses by a stand-in engine, which samples by itself from another distribution."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlfactory.dynamics.token import Token
from rlfactory.engine.base import Completion, Engine, EngineError, SamplingSettings
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm.generate import StopTexts
from rlfactory.model.text_base import response_log_prob
from rlfactory.prompts.base import Prompt
from rlfactory.train.sampling.engine import EngineSampler, checked
from rlfactory.train.sampling.text_sampler import TextSampler
from rlfactory.utils.pytree import require

PROMPTS = [Prompt("a", {"n": 0}), Prompt("It was", {"n": 1})]
GROUPS = torch.tensor([0, 0, 0, 1, 1, 1])


class StandIn(Engine):
    """Samples token after token without a cache, at another temperature than it says."""

    def __init__(self, *, off: float = 1.0) -> None:
        self.off, self.events = off, list[str]()

    def open(self, model: CausalLM) -> None:
        self.events.append("open")

    def load(self, model: CausalLM) -> None:
        self.events.append("load")
        self.network = model.network

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], settings: SamplingSettings
    ) -> list[Completion]:
        return [self._one(p, s, settings) for p, s in zip(prompts, seeds, strict=True)]

    def _one(self, prompt: Sequence[int], seed: int, settings: SamplingSettings) -> Completion:
        random, ids, log_probs = torch.Generator().manual_seed(seed), list[int](), list[float]()
        while len(ids) < settings.length and (not ids or ids[-1] not in settings.stop):
            logits = self.network(torch.tensor([[*prompt, *ids]])).logits[0, -1]
            distribution = (logits / settings.temperature / self.off).log_softmax(-1)
            ids.append(int(torch.multinomial(distribution.exp(), 1, generator=random)))
            log_probs.append(float(distribution[ids[-1]]))
        return Completion(ids, log_probs)


Make = Callable[..., EngineSampler]


@pytest.fixture
def make(gpt2_folder: Path) -> Make:
    def make(engine: Engine, batch: int = 4, **options: Any) -> EngineSampler:
        model = CausalLM(torch.device("cpu"), path=str(gpt2_folder), **options)
        dynamics = Token(length=5, temperature=0.8)
        return EngineSampler(
            model, engine=engine, dynamics=dynamics, batch=batch, advance=lambda count: None
        )

    return make


def test_the_trainer_computes_the_likelihoods(make: Make) -> None:
    engine = StandIn()
    sampler = make(engine)
    rollout = sampler.rollout(PROMPTS, GROUPS, seed=0, iteration=1)
    assert engine.events == ["open", "load"]
    tokens = require(rollout.tokens, "tokens")
    exact = require(tokens.engine_log_prob, "an engine")
    torch.testing.assert_close(tokens.log_prob, exact, atol=1e-5, rtol=1e-5)
    own = response_log_prob(
        sampler._model, sampler._model.weights.in_use, tokens, sampler.dynamics, 100
    )
    torch.testing.assert_close(tokens.log_prob, own, atol=1e-5, rtol=1e-5)
    assert len(rollout.texts or []) == 6
    # of a prompt, samples differ; the batch size changes nothing
    assert len({*map(tuple, tokens.response.tolist())}) > 2
    again = make(StandIn(), 100).rollout(PROMPTS, GROUPS, seed=0, iteration=1)
    assert torch.equal(require(again.tokens, "tokens").response, tokens.response)


def test_values_are_those_of_our_own_loop(make: Make, gpt2_folder: Path) -> None:
    sampler = make(StandIn())
    rollout = sampler.rollout(PROMPTS, GROUPS, seed=0, iteration=0)
    tokens = require(rollout.tokens, "tokens")
    _, value, _ = sampler._model.measure(tokens, lambda logits: ())
    torch.testing.assert_close(tokens.value, tokens.pad(value.detach()), atol=1e-5, rtol=1e-5)
    assert tokens.value.shape == tokens.mask.shape == (6, 5)


def test_another_distribution_shows_as_mismatch(make: Make) -> None:
    rollout = make(StandIn(off=2.0)).rollout(PROMPTS, GROUPS, seed=0, iteration=0)
    tokens = require(rollout.tokens, "tokens")
    off = tokens.log_prob - require(tokens.engine_log_prob, "an engine")
    assert tokens.real(off).abs().mean() > 0.05
    assert off[~tokens.mask].abs().sum() == 0


def test_evaluations_are_drawn_by_our_loop(make: Make) -> None:
    engine = StandIn()
    sampler = make(engine)
    ours = TextSampler(
        sampler._model, dynamics=sampler.dynamics, batch=4, advance=lambda count: None
    )
    one = sampler.draw(["a"] * 3, seed=0, stream="evaluation").texts
    assert one == ours.draw(["a"] * 3, seed=0, stream="evaluation").texts
    assert engine.events == ["open"]


def test_what_the_engine_returns_is_checked(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandIn, "generate", lambda *_: [Completion([999], [-1.0])] * 6)
    with pytest.raises(EngineError, match="token 999, outside"):
        make(StandIn()).rollout(PROMPTS, GROUPS, seed=0, iteration=0)


def test_other_models_have_no_engine() -> None:
    options: dict[str, Any] = {"dynamics": Token(), "batch": 1, "advance": lambda count: None}
    with pytest.raises(EngineError, match="int is no transformers model"):
        EngineSampler(1, engine=StandIn(), **options)


SETTINGS = SamplingSettings(length=4, temperature=1.0, stop=(0,))
GOOD = Completion([5, 6, 0], [-1.0, -2.0, -0.5])
FULL = Completion([5, 6, 7, 8], [-1.0] * 4)


def test_what_was_asked_for_passes() -> None:
    assert checked([GOOD, FULL], 2, SETTINGS, 10) == [GOOD, FULL]


@pytest.mark.parametrize(
    ("completion", "message"),
    [
        (Completion([], []), "is empty"),
        (Completion([1] * 5, [-1.0] * 5), "has 5 tokens, and dynamics.length=4"),
        (Completion([5, 10, 0], [-1.0] * 3), "token 10, outside the model's 10 tokens"),
        (Completion([5, -1, 0], [-1.0] * 3), "token -1, outside"),
        (Completion([5, 0, 6, 0], [-1.0] * 4), "goes on after a stop token"),
        (Completion([5, 6], [-1.0] * 2), "ends after 2 tokens without a stop token"),
        (Completion([5, 6, 0], [-1.0] * 2), "2 log-probabilities for 3 tokens"),
        (Completion([5, 6, 0], [-1.0, float("nan"), -1.0]), "no finite number below 0"),
        (Completion([5, 6, 0], [-1.0, 0.5, -1.0]), "no finite number below 0"),
    ],
)
def test_anything_else_is_refused(completion: Completion, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        checked([GOOD, completion], 2, SETTINGS, 10)


def test_a_response_is_cut_where_a_stop_text_is_complete() -> None:
    words = {5: "xE", 6: "Nx", 7: "ND", 8: "END"}
    texts = StopTexts(Words(words), ["EN", "END"])
    settings = SamplingSettings(length=4, temperature=1.0, stop=(0,), stop_texts=texts)
    drawn = [
        Completion([1, 5, 6, 1], [-1.0, -2.0, -3.0, -4.0]),  # an engine that goes on
        Completion([8], [-1.0]),  # and one that stops by itself
        Completion([5, 5, 0], [-1.0] * 3),
        Completion([6, 7, 1, 6], [-1.0] * 4),
    ]
    found = checked(drawn, 4, settings, 10)
    assert found == [Completion([1, 5, 6], [-1.0, -2.0, -3.0]), *drawn[1:]]
    assert [settings.ends(c.ids) for c in found] == [True, True, True, False]
    with pytest.raises(EngineError, match="ends after 2 tokens without a stop token"):
        checked([Completion([5, 5], [-1.0] * 2)], 1, settings, 10)


class Words:
    """A tokenizer of a few words; other ids are points."""

    def __init__(self, words: dict[int, str]) -> None:
        self.words = words

    def __call__(self, text: str, add_special_tokens: bool) -> SimpleNamespace:
        return SimpleNamespace(input_ids=[1])

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return "".join(self.words.get(i, ".") for i in ids)


def test_ids_that_no_token_has_are_refused() -> None:
    settings = SamplingSettings(length=4, temperature=1.0, stop=(0,), unused=(6, 9))
    with pytest.raises(EngineError, match="has id 6, which no token has"):
        checked([GOOD], 1, settings, 10)


def test_fewer_responses_are_refused() -> None:
    with pytest.raises(EngineError, match="1 responses to 2 prompts"):
        checked([GOOD], 2, SETTINGS, 10)
