"""What a language model's folder says; strangers' folders are in tests/strangers."""

from pathlib import Path

from rlfactory.model.lm.trainable import architecture_fault, gguf_of, language_fault
from rlfactory.model.pipelines.local_models import zoo_path


def test_what_ships_is_whole() -> None:
    assert language_fault(zoo_path("tiny_gpt2")) is None
    assert "no causal language model" in str(language_fault(zoo_path("sentiment")))


def test_a_folder_with_one_gguf_alone_is_one(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    assert gguf_of(tmp_path) == gguf_of(tmp_path / "a.gguf") == tmp_path / "a.gguf"
    (tmp_path / "model.safetensors").touch()
    assert gguf_of(tmp_path) is gguf_of(tmp_path / "b.gguf") is None


def test_code_beside_the_weights_is_needed_only_where_transformers_has_none() -> None:
    own = {"architectures": ["A"], "auto_map": {"AutoModelForCausalLM": "a.A"}}
    assert "auto_map" in str(
        architecture_fault({**own, "architectures": ["AForCausalLM"], "model_type": "mine"})
    )
    known = {**own, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    assert architecture_fault(known) is None
    assert architecture_fault({"architectures": None, "model_type": "gpt2"}) is None
