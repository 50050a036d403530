"""What the parts wrote is the logit, whatever the network and the text."""

from dataclasses import replace

import pytest
import torch
from transformer_lens.model_bridge import TransformerBridge

from rlfactory.model.causal_lm import CausalLM
from rlfactory.tools.inspect.attribution import (
    attribute,
    part_names,
    readout,
    require_complete,
    token_directions,
)
from rlfactory.tools.inspect.hooked_model import InspectionError, Texts, read

IDS = torch.tensor([0, 5, 101, 256])


def test_the_parts_sum_to_the_logit(
    model: CausalLM, bridge: TransformerBridge, texts: Texts
) -> None:
    stream, fixed = read(bridge, texts.ids, texts.foretold), readout(bridge)
    with torch.no_grad():
        logits = model.network(texts.ids).logits[texts.foretold]
    plain = attribute(stream, fixed, *token_directions(fixed, IDS, centred=False))
    torch.testing.assert_close(plain.total(), logits[:, IDS], atol=1e-3, rtol=1e-4)
    less_mean = attribute(stream, fixed, *token_directions(fixed, IDS, centred=True))
    expected = logits[:, IDS] - logits.mean(1, keepdim=True)
    torch.testing.assert_close(less_mean.total(), expected, atol=1e-3, rtol=1e-4)


def test_heads_and_their_bias_are_the_attention(bridge: TransformerBridge, texts: Texts) -> None:
    stream, fixed = read(bridge, texts.ids, texts.foretold), readout(bridge)
    found = attribute(stream, fixed, *token_directions(fixed, IDS, centred=False))
    written = found.heads.sum(2) + found.head_bias
    torch.testing.assert_close(written, found.attention, atol=1e-3, rtol=1e-4)
    everything = found.start + (written + found.mlp).sum(1) + found.constant
    torch.testing.assert_close(everything, found.total(), atol=1e-3, rtol=1e-4)


def test_the_parts_have_names_in_the_order_of_writing(
    bridge: TransformerBridge, texts: Texts
) -> None:
    stream, fixed = read(bridge, texts.ids, texts.foretold), readout(bridge)
    found = attribute(stream, fixed, *token_directions(fixed, IDS, centred=False))
    names = part_names(2)
    assert names == ["embeddings", "attention 1", "MLP 1", "attention 2", "MLP 2", "constant"]
    parts = dict(zip(names, found.parts().unbind(1), strict=True))
    assert torch.equal(parts["attention 2"], found.attention[:, 1])
    assert torch.equal(parts["MLP 1"], found.mlp[:, 0])
    torch.testing.assert_close(found.parts().sum(1), found.total())


def test_weighted_means_keep_the_sum(bridge: TransformerBridge, texts: Texts) -> None:
    stream, fixed = read(bridge, texts.ids, texts.foretold), readout(bridge)
    found = attribute(stream, fixed, *token_directions(fixed, IDS, centred=True))
    weights = torch.rand(found.start.shape, generator=torch.Generator().manual_seed(0))
    mean = found.weighted(weights)
    expected = (found.total() * weights).sum(0) / weights.sum(0)
    torch.testing.assert_close(mean.total()[0], expected, atol=1e-4, rtol=1e-4)
    assert mean.heads.shape == (1, 2, 2, 4)


@pytest.mark.parametrize("part", ["mlp", "heads"])
def test_parts_that_do_not_add_up_are_an_error(
    bridge: TransformerBridge, texts: Texts, part: str
) -> None:
    stream, fixed = read(bridge, texts.ids, texts.foretold), readout(bridge)
    directions = token_directions(fixed, IDS, centred=True)
    require_complete(attribute(stream, fixed, *directions), stream, *directions)
    broken = replace(stream, **{part: 0 * getattr(stream, part)})
    with pytest.raises(InspectionError, match="do not sum"):
        require_complete(attribute(broken, fixed, *directions), stream, *directions)
