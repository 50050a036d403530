"""The families of language models that people train: likelihoods, updates, adapters, memory."""

import re
from collections.abc import Callable
from pathlib import Path
from string import ascii_letters
from typing import Any

import pytest
import torch
from tiny_language_models import KINDS, OTHERS, save_any_language_model, save_language_model
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.memory import Memory
from rlfactory.model.precision import Precision
from rlfactory.prompts.ops.chat import ChatText
from rlfactory.rollout import Tokens
from rlfactory.utils.errors import ModelError
from rlfactory.utils.pytree import index_rows

CPU = torch.device("cpu")
CLOSE: dict[str, float] = {"atol": 2e-5, "rtol": 1e-4}
PROMPTS = [
    ChatText([{"role": "user", "content": "2 + 2?"}]),
    "A text",
    ChatText([{"role": "user", "content": "Write a line about the sea"}]),
]
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    made: dict[str, Path] = {}

    def of(kind: str) -> Path:
        if kind not in made:
            made[kind] = save_language_model(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return of


def roll(model: CausalLM, prompts: list[str] = PROMPTS, length: int = 24, **options: Any) -> Tokens:
    ids, mask = model.encode(prompts)
    uniform = torch.rand(len(PROMPTS), length, generator=torch.Generator().manual_seed(1))
    return model.rollout(ids, mask, Token(length=length, **options), uniform[: len(prompts)])


@pytest.mark.parametrize("kind", [*KINDS, "cohere"])
def test_likelihoods_are_those_of_transformers_and_of_a_full_pass(
    kind: str, folder: Folder
) -> None:
    model = CausalLM(CPU, path=str(folder(kind)), value_start="orthogonal")
    tokens = roll(model)
    logits, values = model.forward(tokens)
    found = Token().step(logits, next=tokens.response[tokens.mask])
    torch.testing.assert_close(found.log_prob, tokens.log_prob[tokens.mask], **CLOSE)
    torch.testing.assert_close(values, tokens.value[tokens.mask], **CLOSE)
    theirs = AutoModelForCausalLM.from_pretrained(folder(kind), dtype=torch.float32).eval()
    real = tokens.prompt[0][tokens.prompt_mask[0]]
    whole = torch.cat([real, tokens.response[0]])[None]
    own = theirs(whole).logits[0, len(real) - 1 : -1].log_softmax(-1)
    chosen = own.gather(1, tokens.response[0, :, None])[:, 0]
    mask = tokens.mask[0]
    torch.testing.assert_close(tokens.log_prob[0][mask], chosen.detach()[mask], **CLOSE)


@pytest.mark.parametrize("architecture", sorted(OTHERS))
def test_other_architectures_too(architecture: str, folder: Folder) -> None:
    """Attention that adds its masks, experts, latent and recurrent states."""
    model = CausalLM(CPU, has_critic=False, path=str(folder(architecture)))
    tokens = require_same_likelihoods(model, **CLOSE)
    assert len({*tokens.mask.sum(1).tolist()}) > 3


@pytest.mark.whole
@pytest.mark.parametrize("architecture", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
def test_every_architecture_is_drawn_from_as_it_learns_or_refused(
    architecture: str, tmp_path: Path
) -> None:
    try:
        save_any_language_model(tmp_path, architecture)
    except Exception as error:  # of any library's code
        pytest.skip(f"no small form of it is known: {error!r:.200}")
    try:
        model = CausalLM(CPU, has_critic=False, path=str(tmp_path))
    except ModelError as error:
        assert "is not supported" in str(error)  # noqa: PT017
        return
    # Nemotron-H and Zamba 2 bound a step of time in whole passes and not on a cache
    require_same_likelihoods(model, atol=0.02, rtol=0)


def require_same_likelihoods(model: CausalLM, **close: float) -> Tokens:
    """Rows that share a prompt, are padded, and leave the batch, have the likelihoods that learning
    computes, and each text alone."""
    ids, mask = model.encode(["A text"] * 6 + ["Another, longer text"])
    uniform = torch.rand(len(ids), 24, generator=torch.Generator().manual_seed(1))
    tokens = model.rollout(ids, mask, Token(length=24, stop=list(ascii_letters)), uniform)
    learned = Token().step(model.forward(tokens)[0], next=tokens.response[tokens.mask]).log_prob
    torch.testing.assert_close(learned, tokens.log_prob[tokens.mask], **close)
    for row in range(len(ids)):
        prompt, response = ids[row][mask[row]], tokens.response[row][tokens.mask[row]]
        whole = model.network(torch.cat([prompt, response])[None]).logits[0]
        own = Token().step(whole[len(prompt) - 1 : -1], next=response).log_prob
        torch.testing.assert_close(tokens.log_prob[row][tokens.mask[row]], own, **close)
    return tokens


@pytest.mark.parametrize("architecture", sorted(OTHERS))
def test_adapters_are_of_linear_layers_whose_weights_they_merge_into(
    architecture: str, folder: Folder
) -> None:
    path = str(folder(architecture))
    model = CausalLM(CPU, has_critic=False, path=path, finetune="lora", lora_rank=4)
    assert model.lora is not None
    layers = [layer.get_base_layer() for layer in model.lora.layers]
    assert layers
    assert all(isinstance(layer, nn.Linear) for layer in layers)
    assert all(layer is not model.network.get_output_embeddings() for layer in layers)
    tokens = roll(model)
    before = model.forward(tokens)[0].detach()
    with torch.no_grad():
        for name, parameter in model.weights.parameters.items():
            if "lora_B" in name:
                parameter.add_(0.05)
        adapted = model.forward(tokens)[0]
        with model.lora.merged():
            torch.testing.assert_close(model.forward(tokens)[0], adapted, atol=2e-3, rtol=1e-3)
    assert not torch.allclose(before, adapted, atol=1e-3)


def test_experts_that_are_named_are_refused(folder: Folder) -> None:
    targets = ["gate_proj", "up_proj", "down_proj"]
    with pytest.raises(ModelError, match="stacks the weights of its experts"):
        CausalLM(CPU, path=str(folder("qwen3_next")), finetune="lora", lora_targets=targets)


@pytest.mark.parametrize("kind", KINDS)
def test_what_else_is_in_the_batch_changes_no_likelihood(kind: str, folder: Folder) -> None:
    model = CausalLM(CPU, path=str(folder(kind)))
    together = roll(model).measured()
    lengths = together.response_lengths.tolist()
    logits = model.forward(together)[0].split(lengths)
    for row in range(len(PROMPTS)):
        alone = together.part(slice(row, row + 1))
        torch.testing.assert_close(model.forward(alone)[0], logits[row], **CLOSE)
        wider = index_rows(together, torch.tensor([row, row])).widened(60)
        torch.testing.assert_close(
            model.forward(wider)[0].split([lengths[row]] * 2)[0], logits[row], **CLOSE
        )


@pytest.mark.parametrize("has_critic", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_in_half_precision_is_recorded_in_float32(
    kind: str, has_critic: bool, folder: Folder
) -> None:
    half = Precision(weights="bfloat16", rollout="bfloat16", learning="bfloat16")
    model = CausalLM(CPU, 0, half, path=str(folder(kind)), finetune="lora", has_critic=has_critic)
    tokens = roll(model)
    assert tokens.log_prob.dtype == tokens.value.dtype == torch.float32
    if not has_critic:
        assert not tokens.value.any()


@pytest.mark.parametrize(("kind", "finetune"), [("qwen3", "full"), ("gemma3", "lora")])
def test_recomputed_layers_change_no_gradient(kind: str, finetune: Any, folder: Folder) -> None:
    gradients = []
    for recompute in (False, True):
        memory = Memory(gradient_checkpointing=recompute)
        model = CausalLM(CPU, memory=memory, path=str(folder(kind)), finetune=finetune)
        model.forward(roll(model))[0].square().mean().backward()  # type: ignore[no-untyped-call]
        policy = model.parameter_groups()[0]["params"]
        gradients.append([p.grad for p in policy if p.grad is not None])
    assert len(gradients[0]) > 4
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_is_the_network_without_its_adapters(kind: str, folder: Folder) -> None:
    base = CausalLM(CPU, path=str(folder(kind)))
    tokens = roll(base)
    model = CausalLM(CPU, path=str(folder(kind)), finetune="lora", lora_rank=4)
    model.weights.add("reference")
    with torch.no_grad():
        for name, parameter in model.weights.parameters.items():
            if "lora_B" in name:
                parameter.add_(0.1)
    expected = base.forward(tokens)[0].detach()
    assert not torch.allclose(model.forward(tokens)[0], expected, atol=1e-3)
    with model.weights("reference"):
        torch.testing.assert_close(model.forward(tokens)[0].detach(), expected, **CLOSE)


def test_a_response_ends_with_its_turn(folder: Folder) -> None:
    model = CausalLM(CPU, path=str(folder("gemma3")))
    end = model.tokenizer.convert_tokens_to_ids("<end_of_turn>")
    assert set(model._end_ids) == {end, model.tokenizer.eos_token_id}
    assert all("<" not in text or "end_of_turn" not in text for text in model.texts(roll(model)))


def test_a_response_that_does_not_fit_is_told_the_length_that_does(folder: Folder) -> None:
    model = CausalLM(CPU, path=str(folder("qwen3")))
    with pytest.raises(
        ModelError, match=r"'user: 2 \+ 2\?'.*128.*type dynamics.length=\d+, or"
    ) as e:
        model.check_lengths(PROMPTS[:1], 120)
    fitting = int(re.findall(r"type dynamics.length=(\d+)", str(e.value))[0])
    model.check_lengths(PROMPTS[:1], fitting)
    with pytest.raises(ModelError, match="leave 120 for a prompt; shorten the prompts, or leave"):
        model.check_lengths(["x" * 200], 8)
