"""What the parts wrote is the logit, whatever the network and the text."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge

from rlfactory.model.causal_lm import CausalLM
from rlfactory.tools.inspect.analysis import Survey
from rlfactory.tools.inspect.attribution import (
    attribute,
    block_names,
    by_block,
    by_layer,
    part_names,
    token_directions,
)
from rlfactory.tools.inspect.hooked_model import InspectionError, Texts, read

IDS = torch.tensor([0, 5, 101, 256])


@pytest.fixture
def found(bridge: TransformerBridge, texts: Texts) -> Tensor:
    stream = read(bridge, texts.ids, texts.foretold)
    return attribute(bridge, stream, *token_directions(bridge, IDS))


def test_the_parts_sum_to_the_logit(model: CausalLM, texts: Texts, found: Tensor) -> None:
    with torch.no_grad():
        logits = model.network(texts.ids).logits[texts.foretold]
    expected = logits[:, IDS] - logits.mean(1, keepdim=True)
    torch.testing.assert_close(found.sum(1), expected, atol=1e-3, rtol=1e-4)


def test_heads_and_their_bias_are_the_attention(
    model: CausalLM, bridge: TransformerBridge, texts: Texts, found: Tensor
) -> None:
    written: list[Tensor] = []
    attention = model.network.transformer.h[1].attn
    attention.register_forward_hook(lambda _, __, output: written.append(output[0]))
    with torch.no_grad():
        model.network(texts.ids)
    directions, _ = token_directions(bridge, IDS)
    weighted = directions * model.network.transformer.ln_f.weight
    weighted = weighted - weighted.mean(-1, keepdim=True)
    scale = read(bridge, texts.ids, texts.foretold).scale
    expected = written[0][texts.foretold] @ weighted.T / scale
    blocks = dict(zip(block_names(2), by_block(found.transpose(0, 1), 2), strict=True))
    torch.testing.assert_close(blocks["attention 2"], expected, atol=1e-3, rtol=1e-4)


def test_the_parts_have_names_in_the_order_of_writing(found: Tensor) -> None:
    names = part_names(2, 2)
    inner = [[f"head {i}.1", f"head {i}.2", f"attention bias {i}", f"MLP {i}"] for i in (1, 2)]
    assert names == ["embeddings", *inner[0], *inner[1], "constant"]
    parts = dict(zip(names, found.unbind(1), strict=True))
    whole = found.transpose(0, 1)
    blocks = dict(zip(block_names(2), by_block(whole, 2), strict=True))
    assert [*blocks][:3] == ["embeddings", "attention 1", "MLP 1"]
    heads = parts["head 2.1"] + parts["head 2.2"]
    torch.testing.assert_close(blocks["attention 2"], heads + parts["attention bias 2"])
    assert torch.equal(blocks["MLP 1"], parts["MLP 1"])
    assert torch.equal(by_layer(whole, 2)[1, 0], parts["head 2.1"])
    torch.testing.assert_close(by_block(whole, 2).sum(0), found.sum(1))


def test_weighted_means_are_of_the_positions_where_a_token_moved_as_on_average(
    survey: Survey,
) -> None:
    base, tuned = survey.attributions()
    change = survey.tuned.lens[:, -1].exp() - survey.base.lens[:, -1].exp()
    for k, sign in ((0, 1), (len(survey.ids) - 1, -1)):
        weights = (sign * change[:, k]).clamp(min=0)
        for mean, view in ((base, survey.base), (tuned, survey.tuned)):
            expected = (view.parts[..., k] * weights[:, None]).sum(0) / weights.sum()
            torch.testing.assert_close(mean[:, k], expected, atol=1e-4, rtol=1e-4)
    assert (survey.layers, survey.heads) == (12, 12)


@pytest.mark.parametrize("part", ["mlp", "heads"])
def test_parts_that_do_not_add_up_are_an_error(
    bridge: TransformerBridge, texts: Texts, part: str
) -> None:
    stream = read(bridge, texts.ids, texts.foretold)
    broken = replace(stream, **{part: 0 * getattr(stream, part)})
    with pytest.raises(InspectionError, match="do not sum"):
        attribute(bridge, broken, *token_directions(bridge, IDS))
