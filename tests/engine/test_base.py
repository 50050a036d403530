"""Weights that are handed over: those in use, as a plain model."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlfactory.engine.base import save_plain
from rlfactory.model.causal_lm import CausalLM


@pytest.mark.parametrize("finetune", ["full", "lora"])
def test_the_saved_model_has_the_weights_in_use(
    gpt2_folder: Path, tmp_path: Path, finetune: str
) -> None:
    model = CausalLM(torch.device("cpu"), path=str(gpt2_folder), finetune=finetune, lora_rank=2)
    for parameter in model.weights.parameters.values():
        parameter.data.add_(0.05)
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        before = model.network(ids).logits
    for _ in range(2):  # saving leaves the model as it is
        save_plain(model, tmp_path / "model")
    assert "lm_head.weight" in load_file(tmp_path / "model" / "model.safetensors")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, before, atol=1e-5, rtol=1e-5)
        assert torch.equal(model.network(ids).logits, before)
    assert AutoTokenizer.from_pretrained(tmp_path / "model").eos_token == "<|endoftext|>"
