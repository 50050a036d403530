"""What is shown of held-out rows is the algorithm's own loss on them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlfactory.algo.dpo import DPO
from rlfactory.algo.sft import SFT
from rlfactory.dynamics.token import Token
from rlfactory.hardware.local import Local
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.weight_sets import REFERENCE
from rlfactory.prompts.base import Prompt
from rlfactory.train.evaluation.held_out_loss import GivenEvaluation
from rlfactory.train.sampling.given import GivenSampler

ROWS = [
    Prompt("The film:", {"completion": " dull.", "chosen": " good", "rejected": " bad plot"}),
    Prompt("A", {"completion": " good film with a plot", "chosen": " x", "rejected": " y"}),
    Prompt("Plot?", {"completion": " ok", "chosen": " fine", "rejected": " no"}),
]


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    made = CausalLM(torch.device("cpu"), path=str(gpt2_folder))
    made.weights.add(REFERENCE)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.weights.parameters.values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return made


def evaluation(model: CausalLM, algo: Any, micro_batch: int = 8) -> GivenEvaluation:
    sampler = GivenSampler(
        model,
        completion=algo.completion,
        members=2 if algo.learns_from_pairs else 1,
        dynamics=Token(length=2),
        batch=2,
        advance=lambda count: None,
    )
    hardware = Local(device="cpu")
    components: Any = SimpleNamespace(model=model, algo=algo, sampler=sampler, hardware=hardware)
    return GivenEvaluation(components, seed=0, micro_batch=micro_batch)


@torch.no_grad()
def log_probs(model: CausalLM, prompt: str, completion: str) -> torch.Tensor:
    """Of each token of a completion and its end, by the network itself."""
    end = model.tokenizer.eos_token_id
    given, rest = (model.tokenizer(text).input_ids for text in (prompt, completion))
    ids = torch.tensor([end, *given, *rest, end])
    logits = model.network(ids[None]).logits[0, :-1].log_softmax(-1)
    return logits.gather(-1, ids[1:, None])[len(given) :, 0]


@pytest.mark.parametrize("micro_batch", [1, 8])
def test_the_loss_of_supervised_rows_is_a_mean_over_their_tokens(
    model: CausalLM, micro_batch: int
) -> None:
    given = evaluation(model, SFT(), micro_batch)
    scores = given.finish(given.measure(ROWS, None))
    losses = [-log_probs(model, row.text, row.metadata["completion"]) for row in ROWS]
    assert scores["loss"].mean().item() == pytest.approx(torch.cat(losses).mean().item(), abs=1e-5)
    sums = torch.tensor([loss.sum() for loss in losses])
    assert torch.allclose(scores["loss"].float(), sums * 3 / len(torch.cat(losses)), atol=1e-5)
    assert given.better == {"loss": "lower", "token_accuracy": "higher"}
    assert set(scores) == {"loss", "token_accuracy"}


def test_pairs_have_one_loss_each(model: CausalLM) -> None:
    given = evaluation(model, DPO(beta=0.5))
    scores = given.finish(given.measure(ROWS, None))
    for number, row in enumerate(ROWS):
        ratios = []
        for column in ("chosen", "rejected"):
            tuned = log_probs(model, row.text, row.metadata[column]).sum()
            with model.weights(REFERENCE):
                ratios.append(tuned - log_probs(model, row.text, row.metadata[column]).sum())
        margin = 0.5 * (ratios[0] - ratios[1])
        assert scores["margin"][number].item() == pytest.approx(margin.item(), abs=1e-4)
        loss = -torch.nn.functional.logsigmoid(margin).item()
        assert scores["loss"][number].item() == pytest.approx(loss, abs=1e-4)
        assert scores["preference_accuracy"][number].item() == float(margin > 0)


@pytest.mark.parametrize("algo", [SFT(), DPO()])
def test_a_rank_measures_its_own_rows(model: CausalLM, algo: Any) -> None:
    given = evaluation(model, algo)
    whole = given.measure(ROWS, None)
    part = given.measure(ROWS, torch.tensor([0, 2]))
    for name, values in part.items():
        assert torch.allclose(values, whole[name][[0, 2]], atol=1e-5)
