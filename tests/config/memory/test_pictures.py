"""The tokens of a picture, in memory and time, against what the bench counts on fake tensors."""

import pytest

from rlfactory.config.memory.activations import ComputeOptions, activation_bytes
from rlfactory.config.memory.model_parts import parts_of
from rlfactory.config.memory.run_shape import latent_area, text_tokens
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.prediction.image_work import network_passes

# scripts/bench/full_size.py --meta --only flux_kontext: at 512 x 512 with LoRA of rank 32 in bf16
FORWARD, LEARNING, STORED = 37.85e12, 80.32e12, 10.72 * 2**30


def test_a_picture_has_as_many_tokens_as_the_sample() -> None:
    config = plan_from_words("model=flux_kontext", "recipe=none").config
    parts = parts_of(config["model"]["path"])
    assert parts is not None
    network = parts["transformer"]
    area, text = latent_area(parts, config, 512), text_tokens(config, parts, network)
    assert (area // 4, text) == (1024, 512 + 1024)
    plain = plan_from_words("model=flux", "recipe=none").config
    assert text_tokens(plain, parts, network) == 512
    options = ComputeOptions(half=True, rank=32)
    forward, backward = network_passes(network.config, area, text, 1, options, network.parameters)
    assert forward.flops == pytest.approx(FORWARD, rel=0.01)
    # the counted passes begin at tokens without a gradient
    assert forward.flops + backward.flops == pytest.approx(LEARNING, rel=0.05)
    stored = activation_bytes(network.config, area, text, options)
    assert stored.saved == pytest.approx(STORED, rel=0.15)
