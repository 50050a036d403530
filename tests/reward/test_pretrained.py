import pytest
import torch
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

from rlfactory.reward.base import RewardError
from rlfactory.reward.pretrained import loading, longest, whole_model, whole_tokenizer

CLASSIFIER = DistilBertForSequenceClassification


@pytest.fixture
def folder(save_classifier):
    return str(save_classifier("A", "B"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_model_comes_frozen_in_the_precision_asked_for(folder, dtype):
    model = whole_model(CLASSIFIER, folder, dtype)
    assert not model.training
    assert {(p.dtype, p.requires_grad) for p in model.parameters()} == {(dtype, False)}


def test_missing_weights_are_named(folder):
    DistilBertModel.from_pretrained(folder).save_pretrained(folder)
    with pytest.raises(ValueError, match=r"no weights for classifier\.bias, classifier\.weight, p"):
        whole_model(CLASSIFIER, folder, torch.float32)


def test_a_model_of_another_kind(folder):
    with pytest.raises(ValueError, match="^it is a distilbert$"):
        whole_model(CLIPModel, folder, torch.float32)
    assert whole_model(AutoModel, folder, torch.float32).config.model_type == "distilbert"


@pytest.fixture
def bert(tmp_path):
    """One saved with neither a pooler nor a classifier."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = BertConfig(vocab_size=20, intermediate_size=8, **sizes)
    BertForMaskedLM(config).save_pretrained(tmp_path)
    return str(tmp_path)


def test_one_part_may_be_missing_and_no_other(bert):
    assert whole_model(AutoModel, bert, torch.float32, without="pooler") is not None
    with pytest.raises(ValueError, match=r"no weights for pooler\."):
        whole_model(AutoModel, bert, torch.float32)
    with pytest.raises(ValueError, match=r"no weights for classifier\.bias, classifier\.weight$"):
        whole_model(BertForSequenceClassification, bert, torch.float32, without="pooler")


def test_a_tokenizer_without_a_vocabulary(folder, bert):
    assert whole_tokenizer(folder)("good movie").input_ids == [2, 7, 5, 3]
    with pytest.raises(ValueError, match="its tokenizer is missing"):
        whole_tokenizer(bert)


def test_the_longest_text_is_what_both_can_read(folder):
    model, tokenizer = CLASSIFIER.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert longest(model, tokenizer) == 24
    tokenizer.model_max_length = 7
    assert longest(model, tokenizer) == 7
    model.config.max_position_embeddings = 0  # as where positions are relative
    assert longest(model, tokenizer) == 7


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
