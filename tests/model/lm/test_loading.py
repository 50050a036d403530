"""Loading a language model for sampling."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from tiny_language_models import save_language_model
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.activations import NewGELUActivation

from rlfactory.model.lm.loading import disable_dropout, load_language_model
from rlfactory.utils.errors import ModelError
from rlfactory.utils.live_objects import live_objects


def test_it_is_float32_without_dropout_and_pads_on_the_left(gpt2_folder: Path) -> None:
    network, tokenizer = load_language_model(str(gpt2_folder))
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    assert all(m.p == 0 for m in network.modules() if isinstance(m, nn.Dropout))
    assert tokenizer.padding_side == "left"
    assert tokenizer.pad_token == tokenizer.eos_token, "explicit masks make this safe"


def test_a_model_in_memory_is_stored_as_its_folder_is_read(tmp_path: Path) -> None:
    folder = str(save_language_model(tmp_path, "qwen3"))
    read, _ = load_language_model(folder, torch.bfloat16)
    with live_objects({"model": load_language_model(folder)}):
        network, _ = load_language_model("object:model", torch.bfloat16)
    expected = {**dict(read.named_parameters()), **dict(read.named_buffers())}
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        assert tensor.dtype == expected[name].dtype, name
        assert torch.equal(tensor, expected[name]), name


def test_dropout_anywhere_is_found() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.5)))
    disable_dropout(network)
    network.train()
    x = torch.ones(4, 2)
    assert torch.equal(network(x), network(x))


@pytest.mark.parametrize("path", ["/no/where", "./nowhere", "zoo:none"])
def test_a_missing_model_is_an_error_that_names_the_key(path: str) -> None:
    with pytest.raises(ModelError, match=f"model.path={path}"):
        load_language_model(path)


def test_a_tokenizer_without_an_end_is_an_error(gpt2_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "endless"
    shutil.copytree(gpt2_folder, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    for key in ("eos_token", "bos_token"):
        config.pop(key, None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    with pytest.raises(ModelError, match="no end of text"):
        load_language_model(str(folder))


@pytest.mark.parametrize("begins", [True, False])
def test_a_tokenizer_that_ends_texts_does_not_end_prompts(tmp_path: Path, begins: bool) -> None:
    folder = save_language_model(tmp_path, "llama")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    plain = tokenizer("x").input_ids
    tokenizer.add_bos_token, tokenizer.add_eos_token = begins, True
    tokenizer.save_pretrained(folder)
    assert AutoTokenizer.from_pretrained(folder)("x").input_ids[-1] == tokenizer.eos_token_id
    _, loaded = load_language_model(str(folder))
    assert loaded("x").input_ids == [*[tokenizer.bos_token_id] * begins, *plain]


def test_a_folder_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="could not be loaded"):
        load_language_model(str(tmp_path))


def test_the_activation_is_the_same_formula_in_one_pass(gpt2_folder: Path) -> None:
    network, _ = load_language_model(str(gpt2_folder))
    theirs = AutoModelForCausalLM.from_pretrained(gpt2_folder)
    assert isinstance(theirs.transformer.h[0].mlp.act, NewGELUActivation)
    assert isinstance(network.transformer.h[0].mlp.act, nn.GELU)
    x = torch.linspace(-6, 6, 1001)
    torch.testing.assert_close(
        network.transformer.h[0].mlp.act(x), theirs.transformer.h[0].mlp.act(x)
    )
