"""The real continuous batching of transformers, on the CPU."""

from pathlib import Path

import pytest
import torch

from rlfactory.dynamics.token import Token
from rlfactory.engine.base import SamplingSettings
from rlfactory.engine.ops.checked import checked
from rlfactory.engine.transformers import Transformers
from rlfactory.model.causal_lm import CausalLM


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
