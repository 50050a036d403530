"""The shapes of language models against networks that transformers builds, and fake tensors."""

import json
from types import ModuleType

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from transformers import AutoConfig, AutoModelForCausalLM

from rlfactory.config.memory.activations import ComputeOptions
from rlfactory.config.memory.language_shapes import (
    PUBLISHED_FILE,
    language_shape,
    language_shape_of,
)

ROWS = {row["hub"][0]: row for row in json.loads(PUBLISHED_FILE.read_text())}


def built(config: dict) -> torch.nn.Module:
    values = {key: value for key, value in config.items() if key != "model_type"}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(
            AutoConfig.for_model(config["model_type"], **values, **ends)
        )


@pytest.mark.parametrize("hub", ROWS)
def test_a_published_model_has_as_many_parameters_as_are_said(hub: str) -> None:
    shape = language_shape(ROWS[hub]["config"])
    assert shape is not None
    count = sum(p.numel() for p in built(ROWS[hub]["config"]).parameters())
    assert count == ROWS[hub]["parameters"]
    assert shape.parameters == pytest.approx(count, rel=0.002)  # norms and biases


SMALL = {
    "gpt2": {"n_embd": 1024, "n_head": 16, "vocab_size": 999, "n_positions": 512},
    "llama": {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16}
    | {"num_key_value_heads": 4, "vocab_size": 999, "head_dim": 64},
    "qwen3": {"hidden_size": 1024, "intermediate_size": 3584, "num_attention_heads": 8}
    | {"num_key_value_heads": 4, "vocab_size": 999, "head_dim": 128},
}
LAYERS = {"gpt2": "n_layer", "llama": "num_hidden_layers", "qwen3": "num_hidden_layers"}
OPTIONS = {
    "lora": ComputeOptions(rank=16),
    "lora, half": ComputeOptions(rank=16, half=True),
    "full": ComputeOptions(full=True),
    "full, half": ComputeOptions(full=True, half=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("manner", OPTIONS)
@pytest.mark.parametrize("kind", SMALL)
def test_layers_keep_what_is_said(kind: str, manner: str, bench: ModuleType) -> None:
    options, rows, tokens = OPTIONS[manner], 2, 192

    def count(layers: int) -> int:
        config = {"model_type": kind, **SMALL[kind], LAYERS[kind]: layers}
        network = built(config).eval()
        if not options.full:
            network.requires_grad_(False).to(torch.bfloat16 if options.half else torch.float32)
            targets = ["c_attn"] if kind == "gpt2" else ["q_proj", "v_proj"]
            inject_adapter_in_model(LoraConfig(r=16, target_modules=targets), network)
        with bench.ghost.fake_tensors():
            bench.ghost.with_fake_tensors(network)
            ids = torch.zeros(rows, tokens, dtype=torch.long)
            mask = torch.ones(rows, tokens, dtype=torch.bool)

            def predict() -> torch.Tensor:
                with torch.autocast("cpu", torch.bfloat16, enabled=options.half):
                    return network.base_model(
                        input_ids=ids, attention_mask=mask, use_cache=False
                    ).last_hidden_state

            return bench.ghost.measured(predict).saved

    shape = language_shape({"model_type": kind, **SMALL[kind], LAYERS[kind]: 1})
    assert shape is not None
    copies = 2 * shape.layer_parameters if options.full and options.half else 0
    found = (count(3) - count(1)) / 2
    assert rows * tokens * shape.saved(options) + copies == pytest.approx(found, rel=0.1)


def test_adapters_are_those_that_peft_makes() -> None:
    for kind, targets in (("gpt2", ["c_attn"]), ("qwen3", ["q_proj", "v_proj"])):
        config = {"model_type": kind, **SMALL[kind], LAYERS[kind]: 2}
        network = built(config)
        inject_adapter_in_model(LoraConfig(r=4, target_modules=targets), network)
        count = sum(p.numel() for n, p in network.named_parameters() if "lora_" in n)
        shape = language_shape(config)
        assert shape is not None
        assert shape.adapters(4, None) == count


def test_other_architectures_and_places_are_not_known() -> None:
    assert language_shape({"model_type": "mamba"}) is None
    assert language_shape_of("owner/unknown") is None
    assert language_shape_of(None) is None
    tiny = language_shape_of("zoo:tiny_gpt2")
    assert tiny is not None
    assert (tiny.layers, tiny.hidden, tiny.vocabulary) == (4, 256, 4096)
