"""What is compared of an architecture when it is loaded, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_language_models import save_language_model
from transformers import AutoModelForCausalLM

from rlfactory.config.memory.devices import is_out_of_memory
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm.known_passes import require_known_passes
from rlfactory.utils.errors import ModelError

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("architecture", "wrong"),
    [
        ("deepseek_v4", "computes other logits after padding"),
        ("mamba", "computes other logits on a cache"),
        ("openai-gpt", "fails on a cache"),
        ("recurrent_gemma", "computes other logits on a cache"),
    ],
)
def test_a_model_that_draws_otherwise_than_it_learns_is_refused(
    architecture: str, wrong: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=rf"^model.path=\S+: \w+ {wrong}.*, and is n"):
        CausalLM(CPU, path=str(save_language_model(tmp_path, architecture)))


def test_other_logits_are_refused(tmp_path: Path) -> None:
    network = AutoModelForCausalLM.from_pretrained(
        save_language_model(tmp_path, "llama"), dtype=torch.float32
    )
    require_known_passes(network, "here")
    network.lm_head.register_forward_hook(lambda *_: None)
    forward = network.forward

    def squared(*args: Any, **options: Any) -> Any:
        output = forward(*args, **options)
        output.logits = output.logits**2
        return output

    network.forward = squared
    with pytest.raises(ModelError, match="^model.path=here: LlamaForCausalLM computes its"):
        require_known_passes(network, "here")


def test_a_device_without_memory_is_told_from_an_architecture(tmp_path: Path) -> None:
    """By what plans and explains memory, which looks at the cause of an error."""
    network = AutoModelForCausalLM.from_pretrained(save_language_model(tmp_path, "llama"))

    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    network.forward = full
    with pytest.raises(ModelError) as caught:
        require_known_passes(network, "here")
    assert is_out_of_memory(caught.value)
