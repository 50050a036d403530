"""The critic: a value head, and a network of its own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
)

from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm.critic import ValueHead
from rlfactory.rollout import Tokens
from rlfactory.utils.errors import ModelError

CPU = torch.device("cpu")
HIDDEN = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))


def reward_model(folder: Path, vocabulary: int = 257, labels: int = 1) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        config = GPT2Config(
            vocab_size=vocabulary,
            n_positions=64,
            n_embd=16,
            n_layer=1,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
            num_labels=labels,
            initializer_range=0.3,
        )
        GPT2ForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.fixture
def model(gpt2_folder: Path, tmp_path: Path) -> CausalLM:
    return CausalLM(CPU, path=str(gpt2_folder), value_path=str(reward_model(tmp_path / "rm")))


def roll(model: CausalLM) -> Tokens:
    ids, mask = model.encode(["This movie", "I", ""])
    uniform = torch.rand(3, 6, generator=torch.Generator().manual_seed(1))
    return model.rollout(ids, mask, Token(length=6), uniform)


def test_a_value_is_the_reward_models_score_of_the_text_so_far(
    model: CausalLM, tmp_path: Path
) -> None:
    tokens = roll(model)
    judge = AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm").eval()
    for row in range(3):
        begun = tokens.prompt[row][tokens.prompt_mask[row]]
        for t in range(int(tokens.mask[row].sum())):
            so_far = torch.cat([begun, tokens.response[row, :t]])[None]
            # transformers looks for the last token that is no padding; here none is
            judge.config.pad_token_id = -1
            torch.testing.assert_close(
                tokens.value[row, t], judge(so_far).logits[0, 0], atol=1e-5, rtol=1e-4
            )


def test_training_reads_what_the_rollout_read(model: CausalLM) -> None:
    tokens = roll(model)
    _, values = model.forward(tokens)
    torch.testing.assert_close(values, tokens.value[tokens.mask], atol=1e-5, rtol=1e-4)
    beyond = tokens.value[~tokens.with_end_state().mask]
    assert torch.equal(beyond, torch.zeros_like(beyond))


def test_policy_and_critic_share_nothing(model: CausalLM) -> None:
    logits, values = model.forward(roll(model))
    values.square().sum().backward()  # type: ignore[no-untyped-call]
    moved = {n for n, p in model.weights.parameters.items() if p.grad is not None}
    assert moved
    assert all(name.startswith("critic.") for name in moved)
    assert logits.requires_grad


def test_the_critic_is_trained_and_belongs_to_no_other_set(model: CausalLM) -> None:
    model.weights.add("ema")
    names = {key.split("/")[0] for key in model.weights.state_dict() if "/critic." in key}
    assert names == {"policy"}
    trained = {id(p) for group in model.parameter_groups() for p in group["params"]}
    assert {id(p) for p in model.critic.parameters()} <= trained


def test_a_language_model_begins_with_scores_of_zero(gpt2_folder: Path) -> None:
    model = CausalLM(CPU, path=str(gpt2_folder), value_path=str(gpt2_folder))
    assert torch.equal(roll(model).value, torch.zeros(3, 6))


def test_an_export_holds_both_networks(model: CausalLM, tmp_path: Path) -> None:
    model.export(tmp_path / "out")
    again = CausalLM(CPU, path=str(tmp_path / "out"), value_path=str(tmp_path / "out/value_model"))
    torch.testing.assert_close(roll(again).value, roll(model).value)


def test_one_that_reads_another_vocabulary_is_an_error(gpt2_folder: Path, tmp_path: Path) -> None:
    small = str(reward_model(tmp_path, vocabulary=50))
    with pytest.raises(ModelError, match="value_path.*50 tokens"):
        CausalLM(CPU, path=str(gpt2_folder), value_path=small)


def test_one_that_reads_both_ways_is_an_error(gpt2_folder: Path, tmp_path: Path) -> None:
    config = BertConfig(
        vocab_size=257, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_labels=1
    )
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="Bert.*no score"):
        CausalLM(CPU, path=str(gpt2_folder), value_path=str(tmp_path))


def test_a_missing_folder_is_an_error(gpt2_folder: Path) -> None:
    with pytest.raises(ModelError, match="value_path=/nowhere"):
        CausalLM(CPU, path=str(gpt2_folder), value_path="/nowhere")


def test_one_with_several_labels_is_an_error(gpt2_folder: Path, tmp_path: Path) -> None:
    several = str(reward_model(tmp_path, labels=3))
    with pytest.raises(ModelError, match="value_path"):
        CausalLM(CPU, path=str(gpt2_folder), value_path=several)


def head(**options: Any) -> ValueHead:
    chosen = {"shape": "mlp", "start": "zero", "detach": True, "seed": 0} | options
    return ValueHead(8, **chosen)


@pytest.mark.parametrize("shape", ["mlp", "linear"])
def test_zero_starts_at_zero_and_can_learn(shape: Any) -> None:
    made = head(shape=shape)
    values = made(HIDDEN)
    assert torch.equal(values, torch.zeros(3, 5))
    values.sum().backward()
    last = list(made.layers)[-1]
    assert last.weight.grad.abs().max() > 0


def test_orthogonal_layers_are_orthogonal() -> None:
    first, _, last = head(start="orthogonal").layers
    torch.testing.assert_close(first.weight.T @ first.weight, 2 * torch.eye(8))
    assert last.weight.norm().item() == pytest.approx(1.0, abs=1e-5)
    assert first.bias.abs().max() == last.bias.abs().max() == 0


@pytest.mark.parametrize("start", ["orthogonal", "default"])
def test_the_start_is_the_seeds_and_leaves_the_global_generator_alone(start: Any) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, same, other = (head(start=start, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(one(HIDDEN), same(HIDDEN))
    assert not torch.equal(one(HIDDEN), other(HIDDEN))


@pytest.mark.parametrize("detach", [True, False])
def test_its_gradient_reaches_the_trunk_unless_detached(detach: bool) -> None:
    hidden = HIDDEN.clone().requires_grad_()
    head(start="default", detach=detach)(hidden).sum().backward()
    assert (hidden.grad is None) == detach


def test_values_are_in_float32() -> None:
    assert head(start="default")(HIDDEN.half()).dtype == torch.float32
