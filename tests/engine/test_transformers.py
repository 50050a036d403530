"""The real continuous batching of transformers, on the CPU."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_language_models import save_language_model
from transformers import ContinuousBatchingConfig

from rlfactory.dynamics.token import Token
from rlfactory.engine.base import EngineError, SamplingSettings
from rlfactory.engine.transformers import Transformers
from rlfactory.model.causal_lm import CausalLM
from rlfactory.train.sampling.engine import checked


@pytest.mark.slow  # it stops a thread, which waits for seconds
@pytest.mark.parametrize("finetune", ["full", "lora"])
def test_it_draws_with_the_weights_in_use(gpt2_folder: Path, finetune: str) -> None:
    model = CausalLM(torch.device("cpu"), path=str(gpt2_folder), finetune=finetune, lora_rank=2)
    engine = Transformers(page_size=16, blocks=64)
    engine.open(model)
    end = model.tokenizer.eos_token_id
    settings = SamplingSettings(length=6, temperature=0.7, stop=(end,))
    prompts = [[1, 2, 3], [4], [5, 6]] * 4
    for shift in (0.0, 0.05):
        for parameter in model.weights.parameters.values():
            parameter.data.add_(shift)
        engine.load(model)
        drawn = checked(
            engine.generate(prompts, [*range(12)], settings), 12, settings, model.vocabulary
        )
        for prompt, completion in zip(prompts, drawn, strict=True):
            ids = torch.tensor([prompt + list(completion.ids)])
            with torch.no_grad():
                logits = model.network(ids).logits[0, len(prompt) - 1 : -1]
            own = Token(temperature=0.7).step(logits, next=ids[0, len(prompt) :]).log_prob
            torch.testing.assert_close(
                torch.tensor(completion.log_probs), own, atol=1e-4, rtol=1e-4
            )
    again = engine.generate(prompts, [*range(12)], settings)
    assert [c.ids for c in again] == [c.ids for c in drawn]  # the same seed
    engine.close()


@pytest.mark.slow
def test_unused_ids_are_not_drawn_and_stop_texts_cut(tmp_path: Path) -> None:
    save_language_model(tmp_path, "gemma2", vocabulary=270)
    model = CausalLM(torch.device("cpu"), path=str(tmp_path))
    model.network.get_output_embeddings().weight.data[list(model.unused_ids)] *= 30
    assert model.unused_ids == tuple(range(260, 270))
    stop = [chr(i) for i in range(97, 123)]
    texts = model.stop_texts(Token(stop=[a + b for a in stop for b in stop]))
    settings = SamplingSettings(8, 1.0, (), texts, model.unused_ids)
    engine = Transformers()
    engine.open(model)
    engine.load(model)
    found = engine.generate([[65, 66]] * 24, [*range(24)], settings)
    engine.close()
    drawn = checked(found, 24, settings, model.vocabulary)
    assert any(settings.ends(c.ids) for c in drawn)
    for completion in drawn:
        text = model.tokenizer.decode(completion.ids)
        assert any(pair in text for pair in texts.texts) == settings.ends(completion.ids)
        ids = torch.tensor([[65, 66, *completion.ids]])
        with torch.no_grad():
            logits = model._logits(model.network.base_model(ids).last_hidden_state[0, 1:-1])
        own = Token().step(logits, next=ids[0, 2:]).log_prob
        torch.testing.assert_close(torch.tensor(completion.log_probs), own, atol=1e-4, rtol=1e-4)


def test_an_architecture_that_it_cannot_batch_is_told_what_draws_from_it(tmp_path: Path) -> None:
    model = CausalLM(torch.device("cpu"), path=str(save_language_model(tmp_path, "jamba")))
    engine = Transformers(page_size=16)
    engine.open(model)
    with pytest.raises(EngineError, match=r"failed with JambaForCausalLM: .*; type engine=own"):
        engine.generate([[65, 66]], [0], SamplingSettings(4, 1.0, ()))


class TooSmall:
    """A network whose memory holds fewer pages than a rollout needs."""

    def __init__(self) -> None:
        self.asked: list[tuple[int | None, int | None]] = []

    def generate_batch(
        self, inputs: Any, continuous_batching_config: ContinuousBatchingConfig, **_: Any
    ) -> dict[str, Any]:
        options = continuous_batching_config
        self.asked.append((options.num_blocks, options.max_batch_tokens))
        if options.num_blocks is not None:
            raise MemoryError("Memory footprint 2 is more than available memory 1")
        return {}


def test_pages_are_as_many_as_are_needed_or_fit() -> None:
    engine = Transformers(page_size=16)
    engine.network = TooSmall()
    engine.generate([[1] * 10, [1] * 11], [0, 1], SamplingSettings(6, 1.0, ()))
    assert engine.network.asked == [(1 + 2, 21), (None, None)]
    own = Transformers(page_size=16, blocks=4, batch_tokens=5)
    own.network = TooSmall()
    with pytest.raises(MemoryError):
        own.generate([[1]], [0], SamplingSettings(6, 1.0, ()))
    assert own.network.asked == [(4, 5)]
