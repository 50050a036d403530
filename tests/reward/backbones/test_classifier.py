import warnings

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DistilBertModel,
    GPT2Config,
    GPT2ForSequenceClassification,
    PreTrainedTokenizerFast,
)

from rlfactory.reward.backbones.classifier import ClassifierReward
from rlfactory.reward.base import RewardError, Samples

TEXTS = ["good", "the movie was a waste of time !", "", "bad bad movies", "great " * 15, "the"]
CPU = torch.device("cpu")


class Logits(ClassifierReward):
    """A classifier whose logits are looked at."""

    main = "logits"

    def score(self, samples: Samples) -> dict[str, torch.Tensor]:
        raise NotImplementedError


def load(path, **options):
    return Logits(CPU, path=str(path), **{"batch_size": 4, **options})


@pytest.fixture
def folder(save_classifier):
    return save_classifier("NEGATIVE", "POSITIVE")


def alone(folder, text):
    """Logits of one text as transformers computes them."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")).logits[0]


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_logits_are_those_of_each_text_alone_in_the_order_given(folder, batch_size):
    found = load(folder, batch_size=batch_size).logits(TEXTS)
    expected = torch.stack([alone(folder, text) for text in TEXTS])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert expected.std(0).min() > 0.1
    assert not found.requires_grad


def test_without_the_mask_padding_is_read(folder):
    masked, unmasked = load(folder), load(folder, use_attention_mask=False)
    torch.testing.assert_close(masked.logits(["good"]), unmasked.logits(["good"]))
    pair = ["good", "the movie was a waste of time !"]
    shift = (masked.logits(pair) - unmasked.logits(pair)).abs().amax(1)
    assert shift[0] > 0.01
    assert shift[1] < 1e-5


def test_long_texts_lose_their_end(folder):
    reads_four = load(folder, max_tokens=4)  # [CLS] and [SEP] are two of them
    assert torch.equal(
        reads_four.logits(["good movie the the the"]), load(folder).logits(["good movie"])
    )
    most = load(folder)
    assert most.max_tokens == 24
    assert torch.equal(most.logits(["good " * 500]), most.logits(["good " * 22]))


def test_nothing_to_score(folder):
    assert load(folder).logits([]).shape == (0, 2)


def test_labels(folder, save_classifier):
    assert load(folder).labels == ["NEGATIVE", "POSITIVE"]
    assert not load(folder).independent
    assert load(save_classifier("SCORE")).independent
    several = save_classifier("toxic", "rude", problem_type="multi_label_classification")
    assert load(several).independent


def test_float16_and_what_it_cannot_hold(save_classifier):
    half = load(save_classifier("A", "B"), dtype="float16").logits(TEXTS)
    assert half.dtype == torch.float16
    assert half.isfinite().all()
    torch.testing.assert_close(
        half.float(), load(save_classifier("A", "B")).logits(TEXTS), atol=0.02, rtol=0.02
    )
    assert load(save_classifier("A", "B", bias=1e5), dtype="float16").logits(TEXTS).isnan().all()


def causal(folder, end="<end>", pads=None, **special):
    """A GPT-2 that has no token to pad with; an empty text has no token at all.

    `pads` is the id that it takes for padding, `special` are further tokens of its tokenizer.
    """
    tokenizer = Tokenizer(models.WordLevel({"<end>": 0, "good": 1, "bad": 2}, unk_token="<end>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    given = {"eos_token": end, **special}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **given).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"vocab_size": 4, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 1}
    ids = {"eos_token_id": 0, "pad_token_id": pads}
    config = GPT2Config(**sizes, num_labels=1, initializer_range=0.5, **ids)
    GPT2ForSequenceClassification(config).save_pretrained(folder)
    return folder


def test_a_model_without_a_token_to_pad_with(tmp_path):
    found = load(causal(tmp_path)).logits(["good bad bad good", "", "bad", "good"])[:, 0]
    assert found.isnan().tolist() == [False, True, False, False]
    single = [load(tmp_path).logits([text])[0, 0] for text in ("good bad bad good", "bad", "good")]
    torch.testing.assert_close(found[[0, 2, 3]], torch.stack(single), atol=1e-5, rtol=1e-4)
    assert len(set(found[[0, 2, 3]].tolist())) == 3


@pytest.mark.parametrize(
    ("pads", "special"),
    [
        (3, {"additional_special_tokens": ["<pad>"]}),
        (3, {"additional_special_tokens": ["<pad>"], "pad_token": "<end>"}),
        (0, {"pad_token": "<pad>"}),
        (2, {}),
    ],
    ids=["none of the tokenizer", "the end of the tokenizer", "another", "a word"],
)
def test_a_network_and_a_tokenizer_that_pad_with_other_tokens(tmp_path, pads, special):
    model = load(causal(tmp_path, pads=pads, **special))
    texts = ["good bad bad good", "good bad", "good"]
    single = torch.stack([model.logits([text])[0] for text in texts])
    torch.testing.assert_close(model.logits(texts), single, atol=1e-5, rtol=1e-4)


def test_a_model_with_no_token_to_pad_with_nor_one_that_ends(tmp_path):
    with pytest.raises(RewardError, match=r"no token to pad with"):
        load(causal(tmp_path, end=None))


def test_loading_says_nothing(folder, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(folder).logits(["good"])
    assert capfd.readouterr() == ("", "")


def without_config(folder):
    (folder / "config.json").unlink()


def without_weights(folder):
    (folder / "model.safetensors").unlink()


def torn_weights(folder):
    (folder / "model.safetensors").write_bytes(b"torn")


def without_tokenizer(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()


def without_head(folder):
    model = DistilBertModel.from_pretrained(folder)
    model.save_pretrained(folder)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (without_config, "no config.json"),
        (without_weights, "model.safetensors"),
        (torn_weights, ""),
        (without_tokenizer, "its tokenizer is missing"),
        (without_head, r"no weights for classifier\.bias"),
    ],
)
def test_a_folder_that_is_no_whole_classifier(folder, harm, message, caplog):
    harm(folder)
    caplog.clear()
    with pytest.raises(RewardError, match=rf"^reward\.path={folder} could not .*{message}"):
        load(folder)
    if harm is without_head:
        assert caplog.records == []


@pytest.mark.parametrize("path", ["zoo:nonesuch", "./nonesuch", "/nonesuch", "~/nonesuch", "a/b/c"])
def test_a_path_that_leads_nowhere(path):
    with pytest.raises(RewardError, match=rf"^reward\.path={path} "):
        load(path)
