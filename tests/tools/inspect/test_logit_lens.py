"""The lens at the last layer is the network; before it, a network that ends there."""

import torch
from torch import nn
from transformer_lens.model_bridge import TransformerBridge

from rlfactory.model.causal_lm import CausalLM
from rlfactory.tools.inspect.attribution import lens, likelier, mean_probabilities, most_changed
from rlfactory.tools.inspect.hooked_model import Texts, read


def test_after_the_last_layer_it_is_the_models_own_word(
    model: CausalLM, bridge: TransformerBridge, texts: Texts
) -> None:
    ids = torch.tensor([3, 70, 111])
    stream = read(bridge, texts.ids, texts.foretold)
    found = lens(bridge, stream, ids.expand(len(stream.start), -1))
    with torch.no_grad():
        expected = model.network(texts.ids).logits.log_softmax(-1)[texts.foretold]
    torch.testing.assert_close(found[:, -1], expected[:, ids], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        mean_probabilities(bridge, texts), expected.double().exp().mean(0), atol=1e-5, rtol=1e-4
    )


def test_after_a_layer_it_is_a_network_that_ends_there(
    model: CausalLM, bridge: TransformerBridge, texts: Texts
) -> None:
    stream = read(bridge, texts.ids, texts.foretold)
    ids = torch.arange(5).expand(len(stream.start), -1)
    model.network.transformer.h = nn.ModuleList(list(model.network.transformer.h)[:1])
    with torch.no_grad():
        expected = model.network(texts.ids, use_cache=False).logits.log_softmax(-1)
    found = lens(bridge, stream, ids)[:, 1]
    torch.testing.assert_close(found, expected[texts.foretold][:, :5], atol=1e-4, rtol=1e-4)


def test_the_most_changed_are_the_ends_of_the_order() -> None:
    before = torch.tensor([0.5, 0.2, 0.2, 0.1])
    rose, fell = most_changed(before, torch.tensor([0.1, 0.3, 0.25, 0.35]), 2)
    assert rose.tolist() == [3, 1]
    assert fell.tolist() == [0, 2]


def test_a_token_written_more_often_is_likelier_although_it_is_ruled_out_somewhere() -> None:
    base = torch.tensor([[0.1], [0.1]]).log()
    tuned = torch.tensor([[0.4], [1e-9]]).log()
    torch.testing.assert_close(likelier(base, tuned), torch.tensor([1.0]))
    assert (tuned - base).mean() < 0
