"""A copy is booted, the original is left alone, and both say the same."""

from pathlib import Path

import pytest
import torch
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoTokenizer, CTRLConfig, CTRLLMHeadModel, LlamaConfig, LlamaForCausalLM

from rlfactory.model.causal_lm import CausalLM
from rlfactory.rollout import Tokens
from rlfactory.tools.inspect.attribution import attribute, token_directions
from rlfactory.tools.inspect.hooked_model import (
    InspectionError,
    Texts,
    boot,
    read,
    texts_of,
    token_name,
)


def test_padding_goes_to_the_right() -> None:
    empty = torch.zeros(2, 3)
    tokens = Tokens(
        prompt=torch.tensor([[1, 2], [9, 3]]),
        prompt_mask=torch.tensor([[True, True], [False, True]]),
        response=torch.tensor([[4, 5, 9], [6, 7, 8]]),
        mask=torch.tensor([[True, True, False], [True, True, True]]),
        ended=torch.tensor([True, False]),
        log_prob=empty,
        value=empty,
    )
    texts = texts_of(tokens)
    assert texts.ids.tolist() == [[1, 2, 4, 5], [3, 6, 7, 8]]
    assert texts.read.int().tolist() == [[0, 0, 1, 1], [0, 1, 1, 1]]
    assert texts.foretold.int().tolist() == [[0, 1, 1, 0], [1, 1, 1, 0]]
    assert texts.ends.int().tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    assert texts.next.tolist() == [4, 5, 6, 7, 8]


def test_every_token_is_foretold_once(texts: Texts) -> None:
    assert torch.equal(texts.foretold.roll(1, 1), texts.read)
    assert bool((texts.ends & texts.foretold).sum(1).eq(1).all())


class Words:
    """A tokenizer of one token."""

    eos_token_id = 7

    def __init__(self, text: str) -> None:
        self.text = text

    def decode(self, ids: list[int]) -> str:
        return self.text


@pytest.mark.parametrize(
    ("text", "name"),
    [(" great", "␣great"), ("\n", "\\n"), ("é", "é"), ("映", "\\u6620")],
)
def test_spaces_show_and_what_no_font_draws_is_a_number(text: str, name: str) -> None:
    assert token_name(Words(text), 3) == name


def test_the_end_and_half_letters_have_names(gpt2_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(gpt2_folder)
    assert token_name(tokenizer, tokenizer.eos_token_id) == "(end)"
    names = [token_name(tokenizer, i) for i in range(256)]
    assert all(names)
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(names)
    assert len({*names}) == 256


def test_it_says_what_the_model_says(
    model: CausalLM, bridge: TransformerBridge, texts: Texts
) -> None:
    with torch.no_grad():
        expected = model.network(texts.ids).logits
        torch.testing.assert_close(bridge(texts.ids), expected, atol=1e-4, rtol=1e-4)


def test_booting_leaves_the_models_own_weights(model: CausalLM) -> None:
    before = {k: v.clone() for k, v in model.network.state_dict().items()}
    names = [n for n, _ in model.network.named_parameters()]
    special = model.tokenizer.special_tokens_map, model.tokenizer.padding_side
    boot(model.network, model.tokenizer)
    after = model.network.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[k], v) for k, v in before.items())
    assert [n for n, _ in model.network.named_parameters()] == names
    assert (model.tokenizer.special_tokens_map, model.tokenizer.padding_side) == special


def test_adapters_become_weights_of_the_copy_alone(gpt2_folder: Path, texts: Texts) -> None:
    model = CausalLM(torch.device("cpu"), path=str(gpt2_folder), finetune="lora", lora_rank=2)
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter.add_(0.03)
        names = [n for n, _ in model.network.named_parameters()]
        tuned = model.network(texts.ids).logits
        found = boot(model.network, model.tokenizer)(texts.ids)
        torch.testing.assert_close(found, tuned, atol=1e-4, rtol=1e-4)
        with model.weights("reference"):
            base = model.network(texts.ids).logits
            found = boot(model.network, model.tokenizer)(texts.ids)
        torch.testing.assert_close(found, base, atol=1e-4, rtol=1e-4)
        assert not torch.allclose(base, tuned, atol=1e-2)
        assert [n for n, _ in model.network.named_parameters()] == names
        torch.testing.assert_close(model.network(texts.ids).logits, tuned)


def test_what_transformer_lens_does_not_know_is_an_error(model: CausalLM) -> None:
    other = CTRLLMHeadModel(CTRLConfig(vocab_size=260, n_embd=8, dff=8, n_layer=1, n_head=1))
    with pytest.raises(InspectionError, match="can't boot a CTRLLMHeadModel"):
        boot(other, model.tokenizer)


def test_rms_norms_and_shared_keys_add_up_too(model: CausalLM, texts: Texts) -> None:
    config = LlamaConfig(
        vocab_size=260,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
    )
    llama = boot(LlamaForCausalLM(config).eval(), model.tokenizer)
    stream = read(llama, texts.ids, texts.foretold)
    found = attribute(llama, stream, *token_directions(llama, torch.arange(7)))
    assert found.shape == (len(stream.start), 2 + 2 * (4 + 2), 7)
