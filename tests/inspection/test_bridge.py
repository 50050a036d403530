"""A copy is booted, the original is left alone, and both say the same."""

from pathlib import Path

import pytest
import torch
from transformer_lens.model_bridge import TransformerBridge
from transformers import CTRLConfig, CTRLLMHeadModel, LlamaConfig, LlamaForCausalLM

from rlfactory.inspection.attribution import (
    attribute,
    readout,
    require_complete,
    token_directions,
)
from rlfactory.inspection.bridge import boot, read
from rlfactory.inspection.errors import InspectionError
from rlfactory.inspection.texts import Texts
from rlfactory.model.causal_lm import CausalLM


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
    stream, fixed = read(llama, texts.ids, texts.foretold), readout(llama)
    directions = token_directions(fixed, torch.arange(7), centred=True)
    require_complete(attribute(stream, fixed, *directions), stream, *directions)
