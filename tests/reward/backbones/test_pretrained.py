import pickle
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import save_file
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    CLIPModel,
    DistilBertForSequenceClassification,
    DistilBertModel,
)
from transformers.utils import logging as transformers_log

from rlfactory.reward.backbones import pretrained
from rlfactory.reward.backbones.pretrained import (
    load_full_model,
    load_full_tokenizer,
    loading,
    max_positions,
    network_dtype,
    read_weights,
    require_shapes,
)
from rlfactory.reward.base import RewardError

CLASSIFIER = DistilBertForSequenceClassification


@pytest.fixture
def folder(save_classifier):
    return str(save_classifier("A", "B"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_model_comes_frozen_in_the_precision_asked_for(folder, dtype):
    model = load_full_model(CLASSIFIER, folder, dtype)
    assert not model.training
    assert {(p.dtype, p.requires_grad) for p in model.parameters()} == {(dtype, False)}


def test_missing_weights_are_named(folder):
    DistilBertModel.from_pretrained(folder).save_pretrained(folder)
    with pytest.raises(ValueError, match=r"no weights for classifier\.bias, classifier\.weight, p"):
        load_full_model(CLASSIFIER, folder, torch.float32)


def test_a_model_of_another_kind(folder):
    with pytest.raises(ValueError, match="^it is a distilbert$"):
        load_full_model(CLIPModel, folder, torch.float32)
    assert load_full_model(AutoModel, folder, torch.float32).config.model_type == "distilbert"


@pytest.fixture
def bert(tmp_path):
    """One saved with neither a pooler nor a classifier."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = BertConfig(vocab_size=20, intermediate_size=8, **sizes)
    BertForMaskedLM(config).save_pretrained(tmp_path)
    return str(tmp_path)


def test_one_part_may_be_missing_and_no_other(bert):
    assert load_full_model(AutoModel, bert, torch.float32, without="pooler") is not None
    with pytest.raises(ValueError, match=r"no weights for pooler\."):
        load_full_model(AutoModel, bert, torch.float32)
    with pytest.raises(ValueError, match=r"no weights for classifier\.bias, classifier\.weight$"):
        load_full_model(BertForSequenceClassification, bert, torch.float32, without="pooler")


def test_a_tokenizer_without_a_vocabulary(folder, bert):
    assert load_full_tokenizer(folder)("good movie").input_ids == [2, 7, 5, 3]
    with pytest.raises(ValueError, match="its tokenizer is missing"):
        load_full_tokenizer(bert)


def test_the_longest_text_is_what_both_can_read(folder):
    model, tokenizer = CLASSIFIER.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert max_positions(model, tokenizer) == 24
    tokenizer.model_max_length = 7
    assert max_positions(model, tokenizer) == 7
    model.config.max_position_embeddings = 0  # as where positions are relative
    assert max_positions(model, tokenizer) == 7


def test_an_error_names_the_key_the_path_and_the_kind():
    said = r"^reward\.encoder=a/b could not be loaded as an encoder: it is a cat$"
    with pytest.raises(RewardError, match=said), loading("reward.encoder", "a/b", "an encoder"):
        raise ValueError("it is a cat")


def fail_while_loading(folder):
    with loading("reward.path", folder, "a cat") as locate:
        assert locate(folder) == folder
        assert not transformers_log.is_progress_bar_enabled()
        assert transformers_log.get_verbosity() == transformers_log.ERROR
        raise ValueError


def test_transformers_is_silent_meanwhile_and_no_longer(folder):
    transformers_log.enable_progress_bar()
    transformers_log.set_verbosity_warning()
    with pytest.raises(RewardError, match=r"^reward\.path"):
        fail_while_loading(folder)
    assert transformers_log.is_progress_bar_enabled()
    assert transformers_log.get_verbosity() == transformers_log.WARNING


WEIGHTS = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2)}
KEY = "reward.head"


@pytest.mark.parametrize("form", ["head.pth", "head.pt", "head.safetensors", "nested"])
def test_every_form_of_a_file_gives_the_same_tensors(tmp_path, form):
    file = tmp_path / (form if "." in form else "head.pt")
    if form == "nested":
        torch.save({"epoch": 3, "name": "x", "state_dict": WEIGHTS}, file)
    else:
        (save_file if file.suffix == ".safetensors" else torch.save)(WEIGHTS, file)
    found = read_weights(str(file), key=KEY)
    assert found.keys() == WEIGHTS.keys()
    assert all(torch.equal(found[name], WEIGHTS[name]) for name in found)


@pytest.mark.parametrize("path", ["/nonesuch.pth", "./a/b/c.pth", "~/nonesuch", "nonesuch", "a/b"])
def test_a_path_that_leads_nowhere(path):
    with pytest.raises(RewardError, match=rf"^{KEY}={path}: .*no such file; type {KEY}=FILE"):
        read_weights(path, key=KEY)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(RewardError, match=rf"^{KEY}={tmp_path}: is a folder; type {KEY}=FILE"):
        read_weights(str(tmp_path), key=KEY)


class Harm:
    ran = False

    def __reduce__(self):
        return setattr, (Harm, "ran", True)


HARMFUL = {"a": Harm()}


@pytest.mark.parametrize("old", [True, False])
def test_a_pickle_of_more_than_tensors_is_refused_and_not_run(tmp_path, old):
    file = tmp_path / "evil.pt"
    if old:
        file.write_bytes(pickle.dumps(HARMFUL, protocol=2))
    else:
        torch.save({**WEIGHTS, **HARMFUL}, file)
    with pytest.raises(RewardError, match=rf"^{KEY}={file} .*refused.*save_file") as raised:
        read_weights(str(file), key=KEY)
    assert not Harm.ran
    assert "weights_only" not in str(raised.value)


def test_a_refused_pickle_says_what_is_in_it(tmp_path):
    torch.save({**WEIGHTS, "where": PurePosixPath("x")}, tmp_path / "x.pt")
    with pytest.raises(RewardError, match=r"refused: .*PurePosixPath"):
        read_weights(str(tmp_path / "x.pt"), key=KEY)


@pytest.mark.parametrize("name", ["x.pt", "x.safetensors"])
@pytest.mark.parametrize("content", [b"", b"torn file", b"PK\x03\x04torn"])
def test_a_torn_file(tmp_path, name, content):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(RewardError, match=rf"^{KEY}={file} "):
        read_weights(str(file), key=KEY)


@pytest.mark.parametrize("content", [{}, {"state_dict": {}}, {"epoch": 3}, torch.ones(2), [1]])
def test_a_file_that_is_no_state_dict(tmp_path, content):
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(RewardError, match="not a state dict"):
        read_weights(str(tmp_path / "x.pt"), key=KEY)


def test_a_file_of_the_hub_is_fetched(tmp_path, monkeypatch):
    torch.save(WEIGHTS, tmp_path / "x.pt")
    asked = []

    def download(repo, name, *, local_files_only):
        asked.append((repo, name, local_files_only))
        return str(tmp_path / "x.pt")

    monkeypatch.setattr(pretrained, "hf_hub_download", download)
    for why in (None, OSError("no connection")):
        monkeypatch.setattr(pretrained, "unreachable", lambda repo, why=why: why)
        assert read_weights("owner/name/sub/x.pt", key=KEY).keys() == WEIGHTS.keys()
    assert asked == [("owner/name", "sub/x.pt", False), ("owner/name", "sub/x.pt", True)]


def test_a_hub_that_gives_nothing(monkeypatch):
    def download(*_, **__):
        raise LocalEntryNotFoundError("not in the cache")

    monkeypatch.setattr(pretrained, "hf_hub_download", download)
    monkeypatch.setattr(pretrained, "unreachable", lambda repo: OSError("no connection.\nMore."))
    message = r"^reward\.head=o/n/x\.pt .*no connection.*`hf download o/n x\.pt`.*reward\.head=FILE"
    with pytest.raises(RewardError, match=message):
        read_weights("o/n/x.pt", key=KEY)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        ({"a.bias": None}, r"it lacks a\.bias; type reward\.head=FILE"),
        ({"b": torch.ones(1)}, r"it has b besides;"),
        ({"a.bias": torch.ones(3)}, r"its a\.bias is \[3\] in place of \[2\];"),
        ({"a.bias": None, "b": torch.ones(1)}, "it lacks a.bias, and 1 more such faults"),
    ],
)
def test_names_and_shapes_must_be_exactly_those(harm, message):
    wanted = SimpleNamespace(state_dict=lambda: WEIGHTS)
    changed = {k: v for k, v in {**WEIGHTS, **harm}.items() if v is not None}
    require_shapes(WEIGHTS, wanted, path="x.pt", key=KEY, what="head")
    with pytest.raises(RewardError, match=rf"^{KEY}=x\.pt is no head: {message}"):
        require_shapes(changed, wanted, path="x.pt", key=KEY, what="head")


def test_home_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    torch.save(WEIGHTS, Path(tmp_path) / "x.pt")
    assert read_weights("~/x.pt", key=KEY)


def test_networks_compute_in_bfloat16_on_a_gpu_alone():
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert [network_dtype("auto", device) for device in (gpu, cpu)] == [
        torch.bfloat16,
        torch.float32,
    ]
    assert network_dtype("float16", gpu) == network_dtype("float16", cpu) == torch.float16
