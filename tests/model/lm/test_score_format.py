"""Reward model and value model read the same state: after the end, padding left out."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import (
    AutoTokenizer,
    GPT2ForSequenceClassification,
    PreTrainedTokenizerFast,
)

from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm.critic import ScoreFormat, end_scores
from rlfactory.reward.base import RewardError, Samples
from rlfactory.reward.reward_model import RewardModel
from rlfactory.rollout import Tokens
from rlfactory.utils.errors import ModelError

CPU = torch.device("cpu")
END = "<|endoftext|>"
PROMPTS = ["The film", "A"]
TEXTS = [" was good", " ok"]
LENGTH = 12
CLOSE: dict[str, float] = {"atol": 1e-4, "rtol": 1e-4}


@pytest.fixture
def scorer(gpt2_folder: Path, tmp_path: Path) -> Path:
    """From the policy's own base, as `rlfactory reward-model` writes it."""
    folder = tmp_path / "rm"
    with torch.random.fork_rng():
        torch.manual_seed(1)
        network = GPT2ForSequenceClassification.from_pretrained(gpt2_folder, num_labels=1)
        torch.nn.init.normal_(network.score.weight)
    network.config.pad_token_id = network.config.eos_token_id
    ScoreFormat(END, True, 0.75).record(network.config)
    network.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gpt2_folder).save_pretrained(folder)
    return folder


def given(model: CausalLM) -> Tokens:
    ids, mask = model.encode(PROMPTS)
    response, real, ended = model.encode_completions(PROMPTS, TEXTS, LENGTH)
    # as wide as the rollout of responses of any length is
    free = (0, LENGTH - response.shape[1])
    response, real = pad(response, free, value=model.tokenizer.pad_token_id), pad(real, free)
    zeros = torch.zeros(response.shape)
    return Tokens(ids, mask, response, real, ended, zeros, zeros)


def samples(ended: Tensor | None = None) -> Samples:
    return Samples(PROMPTS, [{}, {}], torch.arange(2), texts=TEXTS, ended=ended)


def values_of(model: CausalLM, tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Of each response the value before its last token, and the one after the end."""
    states = tokens.with_end_state()
    _, values, _ = model.measure(tokens, lambda logits: (logits,), value_tokens=states)
    table, lengths = states.pad(values.detach()), tokens.mask.sum(1)
    rows = torch.arange(len(lengths))
    return table[rows, lengths - 1], table[rows, lengths]


def test_the_value_after_the_end_is_the_score(gpt2_folder: Path, scorer: Path) -> None:
    model = CausalLM(CPU, path=str(gpt2_folder), value_path=str(scorer))
    before, after = values_of(model, given(model))
    reward = RewardModel(CPU, path=str(scorer))
    torch.testing.assert_close(reward.score(samples())["reward_model"], after, **CLOSE)
    unfinished = reward.score(samples(torch.tensor([False, False])))["reward_model"]
    torch.testing.assert_close(unfinished, before, **CLOSE)
    assert (before - after).abs().min() > 0.01
    mixed = reward.score(samples(torch.tensor([False, True])))["reward_model"]
    torch.testing.assert_close(mixed, torch.stack([before[0], after[1]]), **CLOSE)


CHAT = (
    "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}"
    "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
"""A template that writes a line after the end of an answer, as SmolLM2's and Qwen's do."""


def test_a_chat_models_text_is_read_as_the_policy_writes_it(
    gpt2_folder: Path, scorer: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "chat"
    shutil.copytree(gpt2_folder, folder)
    tokenizer = AutoTokenizer.from_pretrained(gpt2_folder)
    tokenizer.chat_template = CHAT
    for place in (folder, scorer):
        tokenizer.save_pretrained(place)
    model = CausalLM(CPU, path=str(folder), value_path=str(scorer), text_role="auto")
    before, after = values_of(model, given(model))
    reward = RewardModel(CPU, path=str(scorer), prefix="")
    torch.testing.assert_close(reward.score(samples())["reward_model"], after, **CLOSE)
    unfinished = reward.score(samples(torch.tensor([False, False])))["reward_model"]
    torch.testing.assert_close(unfinished, before, **CLOSE)
    as_it_is = RewardModel(CPU, path=str(scorer), prefix="", text_role="none")
    assert not torch.allclose(as_it_is.score(samples())["reward_model"], after, **CLOSE)


def test_the_mean_is_subtracted_from_both(gpt2_folder: Path, scorer: Path) -> None:
    network = GPT2ForSequenceClassification.from_pretrained(scorer)
    tokenizer = AutoTokenizer.from_pretrained(scorer)
    ids = torch.tensor([tokenizer(END + "The film was good" + END).input_ids])
    raw = end_scores(network.eval(), ids, torch.ones_like(ids))[0, 0]
    found = RewardModel(CPU, path=str(scorer)).score(samples())["reward_model"][0]
    assert found.item() == pytest.approx(raw.item() - 0.75, abs=1e-5)


def test_padding_changes_no_score(scorer: Path) -> None:
    network = GPT2ForSequenceClassification.from_pretrained(scorer).eval()
    ids = torch.tensor([[5, 6, 256, 256, 256], [7, 8, 9, 10, 256]])
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    both = end_scores(network, ids, mask)
    alone = end_scores(network, ids[:1, :3], mask[:1, :3])
    torch.testing.assert_close(both[:1], alone, **CLOSE)
    other = end_scores(network, torch.where(mask.bool(), ids, 17), mask)
    assert torch.equal(both, other)


def test_options_replace_what_the_folder_says(scorer: Path) -> None:
    plain = RewardModel(CPU, path=str(scorer), prefix="", with_end=False)
    assert (plain.prefix, plain.with_end) == ("", False)
    trained = RewardModel(CPU, path=str(scorer))
    assert (trained.prefix, trained.with_end) == (END, True)


def test_an_export_of_the_value_model_keeps_its_mean(
    gpt2_folder: Path, scorer: Path, tmp_path: Path
) -> None:
    model = CausalLM(CPU, path=str(gpt2_folder), value_path=str(scorer))
    model.export(tmp_path / "out")
    saved = str(tmp_path / "out" / "value_model")
    again = CausalLM(CPU, path=str(tmp_path / "out"), value_path=saved)
    torch.testing.assert_close(
        values_of(again, given(again)), values_of(model, given(model)), **CLOSE
    )


def test_a_model_of_classes_that_reads_both_ways_has_no_end(save_classifier_of_both: Path) -> None:
    with pytest.raises(RewardError, match=r"with_end=true: Bert.*set reward\.with_end=false"):
        RewardModel(CPU, path=str(save_classifier_of_both), with_end=True)


@pytest.fixture
def save_classifier_of_both(gpt2_folder: Path, tmp_path: Path) -> Path:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=257, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_labels=1
    )
    BertForSequenceClassification(config).save_pretrained(tmp_path / "bert")
    AutoTokenizer.from_pretrained(gpt2_folder).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_a_value_model_with_another_tokenizer_is_refused(gpt2_folder: Path, scorer: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(scorer)
    vocabulary = tokenizer.get_vocab()
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    backend = type(tokenizer.backend_tokenizer)
    from tokenizers.models import BPE

    other = PreTrainedTokenizerFast(
        tokenizer_object=backend(BPE(vocab=vocabulary, merges=[])), eos_token=END
    )
    other.save_pretrained(scorer)
    with pytest.raises(ModelError, match=r"value_path=.*another tokenizer.*'[ab]'.*reward-model"):
        CausalLM(CPU, path=str(gpt2_folder), value_path=str(scorer))


def test_a_padding_token_of_its_own_is_no_other_tokenizer(gpt2_folder: Path, scorer: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(scorer)
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(scorer)
    assert CausalLM(CPU, path=str(gpt2_folder), value_path=str(scorer)) is not None


def test_it_is_read_back() -> None:
    class Config: ...

    config = Config()
    assert ScoreFormat.of(config) == ScoreFormat()
    made = ScoreFormat("x", True, -1.5)
    made.record(config)
    assert ScoreFormat.of(config) == made
    assert replace(made, mean=0.0) != made
