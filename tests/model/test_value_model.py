"""A critic with a network of its own."""

from pathlib import Path

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
from rlfactory.model.pipeline import ModelError
from rlfactory.rollout import Tokens

CPU = torch.device("cpu")


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
    assert torch.equal(tokens.value[~tokens.mask], torch.zeros_like(tokens.value[~tokens.mask]))


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
