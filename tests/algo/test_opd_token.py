"""On-policy distillation of texts: exact and sampled divergences, vocabularies, adapters."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import kl_div

from rlfactory.algo.opd_token import TextOPD
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.dynamics.token import Token
from rlfactory.model import text_base
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.pipelines.teacher_files import vocabulary_of
from rlfactory.rollout import Rollout
from rlfactory.utils.errors import ModelError

TOKEN = Token(length=6)
CPU = torch.device("cpu")


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    return CausalLM(CPU, path=str(gpt2_folder), has_critic=False)


def moved(model: CausalLM, by: float = 0.05) -> CausalLM:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter.add_(by * torch.randn(parameter.shape, generator=generator))
    return model


def drawn(model: CausalLM) -> Rollout:
    prompt, mask = model.encode(["one", "another prompt", "x"])
    uniform = torch.rand(3, 6, generator=torch.Generator().manual_seed(0))
    tokens = model.rollout(prompt, mask, TOKEN, uniform)
    return Rollout(["a", "b", "c"], [{}] * 3, torch.arange(3), torch.arange(3), tokens=tokens)


def algorithm(*teachers: Any, **options: Any) -> TextOPD:
    algo = TextOPD(TOKEN, teachers=[""] * len(teachers), **options)
    algo.teachers = list(teachers)
    return algo


def batches(algo: TextOPD, model: CausalLM, rollout: Rollout) -> list[Any]:
    rollout = algo.compute_advantages(rollout, "any")
    return [*algo.training_items(rollout, model, seed=0, iteration=0).split(8)]


def gradient(model: CausalLM, value: Tensor) -> list[Tensor]:
    return [*torch.autograd.grad(value, [*model.weights.parameters.values()])]


@pytest.mark.parametrize("divergence", ["reverse", "forward"])
def test_the_divergence_is_torchs(model: CausalLM, gpt2_folder: Path, divergence: Any) -> None:
    teacher = moved(CausalLM(CPU, path=str(gpt2_folder), has_critic=False))
    algo = algorithm(teacher, divergence=divergence)
    (batch,) = batches(algo, model, drawn(model))
    loss = algo.loss(model, batch)
    log_p, log_q = (m.forward(batch.tokens)[0].log_softmax(-1) for m in (model, teacher))
    ours, other = (log_q, log_p) if divergence == "reverse" else (log_p, log_q)
    expected = kl_div(ours, other, log_target=True, reduction="none").sum(-1)
    torch.testing.assert_close(loss.metrics["kl/teacher"], expected.detach(), rtol=1e-4, atol=1e-6)
    slopes = zip(gradient(model, loss.value), gradient(model, expected.mean()), strict=True)
    for found, theirs in slopes:
        torch.testing.assert_close(found, theirs, rtol=1e-3, atol=1e-6)


def test_the_golden_divergence() -> None:
    """Provenance: by hand, p = (1/2, 1/4, 1/4), q = (1/4, 1/4, 1/2): both are ln(2) / 4."""
    log_p, log_q = (torch.tensor([row]).log() for row in ([0.5, 0.25, 0.25], [0.25, 0.25, 0.5]))
    for divergence in ("reverse", "forward"):
        found = algorithm(divergence=divergence)._divergence(log_p, log_q)
        assert found.item() == pytest.approx(0.25 * 0.6931472, rel=1e-6)
    # logits of ids that no token has change nothing, in either network
    wide = torch.cat([log_q, torch.tensor([[9.0]])], 1)
    narrow = torch.cat([log_p, torch.tensor([[-1e9]])], 1)
    assert algorithm()._divergence(log_p, wide).item() == pytest.approx(0.1732868, rel=1e-6)
    assert algorithm()._divergence(narrow, log_q).item() == pytest.approx(0.1732868, rel=1e-6)


def test_the_sampled_gradient_is_that_of_reinforce(model: CausalLM, gpt2_folder: Path) -> None:
    """With `log q - log p` of the tokens as advantage (tinker-cookbook, train_on_policy.py)."""
    teacher = moved(CausalLM(CPU, path=str(gpt2_folder), has_critic=False))
    algo = algorithm(teacher, divergence="sampled")
    (batch,) = batches(algo, model, drawn(model))
    loss = algo.loss(model, batch)
    log_p, _ = model.token_log_probs(batch.tokens, TOKEN)
    advantage = teacher.token_log_probs(batch.tokens, TOKEN)[0].detach() - log_p.detach()
    expected = gradient(model, -(advantage * log_p).mean())
    for found, theirs in zip(gradient(model, loss.value), expected, strict=True):
        torch.testing.assert_close(found, theirs, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("divergence", ["reverse", "forward", "sampled"])
def test_chunks_of_logits_change_nothing(
    model: CausalLM, gpt2_folder: Path, divergence: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    algo = algorithm(moved(CausalLM(CPU, path=str(gpt2_folder))), divergence=divergence)
    (batch,) = batches(algo, model, drawn(model))
    whole = algo.loss(model, batch)
    expected = gradient(model, whole.value)
    monkeypatch.setitem(text_base.MAX_LOGITS, "cpu", 4 * 2 * model.vocabulary)
    chunked = algo.loss(model, batch)
    assert chunked.outputs.log_probs is None
    torch.testing.assert_close(chunked.value, whole.value, rtol=1e-5, atol=1e-8)
    for found, theirs in zip(gradient(model, chunked.value), expected, strict=True):
        torch.testing.assert_close(found, theirs, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("divergence", ["reverse", "forward", "sampled"])
def test_a_teacher_like_the_student_teaches_nothing(
    model: CausalLM, gpt2_folder: Path, divergence: Any
) -> None:
    algo = algorithm(model.frozen(str(gpt2_folder)), divergence=divergence)
    (batch,) = batches(algo, model, drawn(model))
    loss = algo.loss(model, batch).value
    assert loss == 0
    assert not any(slope.any() for slope in gradient(model, loss))


def test_adapters_are_a_teacher_and_leave_the_student(gpt2_folder: Path, tmp_path: Path) -> None:
    student = CausalLM(CPU, path=str(gpt2_folder), finetune="lora", lora_rank=2, has_critic=False)
    before = drawn(student)
    moved(student)
    student.export(tmp_path)
    teacher = student.frozen(str(tmp_path))
    tokens = before.tokens
    assert tokens is not None
    torch.testing.assert_close(
        teacher.forward(tokens)[0], student.forward(tokens)[0], rtol=1e-4, atol=1e-4
    )
    assert not teacher.forward(tokens)[0].requires_grad
    assert student.lora is not None


def test_a_teacher_of_another_vocabulary_is_refused(model: CausalLM) -> None:
    with pytest.raises(ModelError, match="vocabulary of 15 tokens is not the model's"):
        model.frozen("zoo:arithmetic")
    with pytest.raises(PlanError, match="vocabulary of 15 tokens is not the 4096 of zoo:tiny_gpt2"):
        plan_from_words("model=tiny_gpt2", "algo=opd", "algo.teachers=[zoo:arithmetic]")


def test_a_unigram_vocabulary_is_read(tmp_path: Path) -> None:
    model = {"vocab": [["a", -1.0], ["b", -2.0]]}
    content = {"model": model, "added_tokens": [{"content": "<end>", "id": 2}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert vocabulary_of(tmp_path) == {"a": 0, "b": 1, "<end>": 2}
    assert vocabulary_of(tmp_path / "nowhere") == {}


def test_each_of_two_teachers_has_its_groups(model: CausalLM, gpt2_folder: Path) -> None:
    near, far = (moved(CausalLM(CPU, path=str(gpt2_folder)), by) for by in (0.01, 0.1))
    algo = algorithm(near, far)
    first, second = batches(algo, model, drawn(model))
    assert (first.teacher, len(first), second.teacher, len(second)) == (0, 2, 1, 1)
    losses = [algo.loss(model, batch).value.item() for batch in (first, second)]
    assert losses[1] > 10 * losses[0] > 0
