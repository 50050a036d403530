"""A random GPT-2 of two layers and what TransformerLens makes of it; a survey as of GPT-2."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformer_lens.model_bridge import TransformerBridge

from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.report.statistics import Change
from rlfactory.tools.inspect.analysis import DirectionView, Survey, TokenView
from rlfactory.tools.inspect.hooked_model import Texts, boot, texts_of

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


L, H, TOKENS, WIDTH, SAMPLES = 12, 12, 16, 60, 4
WORDS = [" wonderful", " great", "\n", " unfortunately", " the", ",", " awful", " masterpiece"]


class Words:
    """Numbers to words."""

    eos_token_id = 999

    def decode(self, ids: list[int]) -> str:
        return WORDS[ids[0] % len(WORDS)]


PARTS = 2 + L * (H + 2)


def view(draw: Iterator[torch.Generator], shift: float) -> TokenView:
    rows = SAMPLES * (WIDTH - 10)
    at = torch.arange(rows)
    growing = torch.linspace(0, shift, L + 1)[:, None]
    logits = torch.randn(rows, L + 1, TOKENS, generator=next(draw))
    sign = torch.ones(TOKENS)
    sign[TOKENS // 2 :] = -1
    return TokenView(
        lens=(logits + growing * sign).sigmoid().log() - 5,
        next=torch.randn(rows, L + 1, generator=next(draw)) - 3,
        parts=torch.randn(rows, PARTS, TOKENS, generator=next(draw)),
        ends=at % (WIDTH - 10) == 0,
        sample=at // (WIDTH - 10),
    )


@pytest.fixture
def survey() -> Survey:
    generator = torch.Generator().manual_seed(0)
    draw = iter(lambda: generator, None)
    at = torch.arange(WIDTH).expand(SAMPLES, -1)
    one = torch.randn(PARTS, generator=generator) / 60
    return Survey(
        texts=Texts(at, at >= 10, (at >= 9) & (at < WIDTH - 1), at == 9),
        scores=torch.tensor([0.3, torch.nan, 0.9, 0.1]),
        ids=torch.arange(TOKENS),
        probability=torch.rand(2, 20, generator=generator),
        base=view(draw, 0.0),
        tuned=view(draw, 3.0),
        direction=DirectionView(
            gap=one,
            shift=one,
            change=Change(0.1, 0.4, 0.3, 0.2, 0.4, 32),
            separation=0.8,
            up=torch.arange(8),
            down=torch.arange(8),
        ),
    )
