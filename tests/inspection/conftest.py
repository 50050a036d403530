"""A random GPT-2 of two layers, and what TransformerLens makes of it."""

from pathlib import Path

import pytest
import torch
from transformer_lens.model_bridge import TransformerBridge

from rlfactory.dynamics.token import Token
from rlfactory.inspection.bridge import boot
from rlfactory.inspection.texts import Texts, texts_of
from rlfactory.model.causal_lm import CausalLM

PROMPTS = ["This movie", "I", "", "A long opening of"]


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    """Layer norms and biases away from where they start, so that leaving one out shows."""
    model = CausalLM(torch.device("cpu"), path=str(gpt2_folder))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture
def texts(model: CausalLM) -> Texts:
    """Four prompts with responses of different lengths."""
    ids, mask = model.encode(PROMPTS)
    uniform = torch.rand(len(PROMPTS), 12, generator=torch.Generator().manual_seed(1))
    stop = Token(length=12, stop=list("aeiou"), stop_after=4)
    return texts_of(model.rollout(ids, mask, stop, uniform))


@pytest.fixture
def bridge(model: CausalLM) -> TransformerBridge:
    return boot(model.network, model.tokenizer)
