"""The format: what goes in comes out, bit for bit, and nothing else comes in."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

from rlfactory.prompts.ops.chat import ChatText
from rlfactory.prompts.ops.pictured import PicturedText, png_of
from rlfactory.reward.base import Samples
from rlfactory.reward.client.protocol import (
    ProtocolError,
    decode_scores,
    encode_samples,
    encode_scores,
    from_json,
    read_request,
    to_json,
)


def test_the_pictures_of_prompts_survive():
    texts = [PicturedText("a", png_of(Image.new("RGB", (2, 2), (i, 0, 0)))) for i in range(3)]
    images = torch.zeros(3, 3, 4, 4, dtype=torch.uint8)
    samples = Samples(texts, [{}] * 3, torch.arange(3), images)
    message = from_json(to_json(encode_samples(samples, [2, 1], "png")))
    found = read_request(message, "images").samples().prompts
    assert [text.open().getpixel((0, 0))[0] for text in found] == [2, 1]
    message["pictures"][0] = "?"
    with pytest.raises(ProtocolError, match="an image is no base64"):
        read_request(message, "images")
    with pytest.raises(ProtocolError, match="1 pictures for 2 prompts"):
        read_request({**message, "pictures": ["aaaa"]}, "images")


def test_conversations_and_ends_survive():
    chat = ChatText([{"role": "user", "content": "Hi"}], [{"name": "now"}])
    ended = torch.tensor([True, False, True])
    samples = Samples(["p", chat, "q"], [{}] * 3, torch.arange(3), texts=["a"] * 3, ended=ended)
    message = from_json(to_json(encode_samples(samples, [1, 2], "png")))
    found = read_request(message, "texts").samples()
    assert found.prompts == [chat, "q"]
    assert found.prompts[0].messages == chat.messages
    assert found.ended.tolist() == [False, True]
    with pytest.raises(ProtocolError, match="a conversation: must be"):
        read_request({**message, "conversations": [{"messages": "Hi"}, {}]}, "texts")
    with pytest.raises(ProtocolError, match="ended 0 must be of type bool"):
        read_request({**message, "ended": [0, 1]}, "texts")


@pytest.mark.parametrize("encoding", ["png", "raw"])
def test_pictures_survive(encoding):
    torch.manual_seed(0)
    images = torch.randint(0, 256, (5, 3, 7, 9), dtype=torch.uint8)
    metadata = [{"scene": {"n": i, "é": None}} for i in range(5)]
    samples = Samples(list("abcde"), metadata, torch.tensor([4, 4, -1, 9, 4]), images)
    body = to_json(encode_samples(samples, [4, 2, 0], encoding))
    request = read_request(from_json(body), "images", ["scene"])
    assert (request.size, request.pixels) == ((7, 9), 3 * 63)
    found = request.samples()
    assert found.images is not None
    assert torch.equal(found.images, images[[4, 2, 0]])
    assert found.images.dtype == torch.uint8
    assert found.prompts == ["e", "c", "a"]
    assert found.metadata == [metadata[4], metadata[2], metadata[0]]
    assert found.groups.tolist() == [0, 1, 0]
    assert found.texts is None


def test_texts_survive():
    texts = ["", "naïve \U0001f600 \x00", "\n"]
    samples = Samples(["p"] * 3, [{}] * 3, torch.arange(3), texts=texts)
    body = to_json(encode_samples(samples, [0, 1, 2], "png"))
    found = read_request(from_json(body), "texts").samples()
    assert (found.texts, found.images) == (texts, None)


def test_scores_survive():
    torch.manual_seed(0)
    values = torch.randn(1000) * 10 ** torch.linspace(-30, 30, 1000)
    values[7] = math.nan
    message = from_json(to_json(encode_scores({"a": values, "b": -values})))
    found = decode_scores(message, 1000, "a")
    assert [*found] == ["a", "b"]
    assert torch.equal(found["a"].nan_to_num(1), values.nan_to_num(1))
    assert found["a"].dtype == torch.float32
    assert found["a"].isnan().nonzero().tolist() == [[7]]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({}, "no scores of the name a"),
        ({"scores": [1, 2]}, "no scores of the name a"),
        ({"scores": {"b": [1, 2]}}, "no scores of the name a"),
        ({"scores": {"a": [1]}}, "1 scores a for 2 samples"),
        ({"scores": {"a": [1, 2, 3]}}, "3 scores a for 2 samples"),
        ({"scores": {"a": 1}}, "no scores a for 2"),
        ({"scores": {"a": [1, "2"]}}, "'2', neither a finite number nor null"),
        ({"scores": {"a": [1, True]}}, "True, neither"),
        ({"scores": {"a": [1, 1e39]}}, "1e[+]39, neither"),
        ({"scores": {"a": [1, [2]]}}, "neither"),
        ({"scores": {"a": [1, 2], "b": [1]}}, "1 scores b for 2 samples"),
    ],
)
def test_answers_that_are_nonsense(answer, said):
    with pytest.raises(ProtocolError, match=said):
        decode_scores(answer, 2, "a")


def test_a_number_too_large_for_a_float():
    with pytest.raises(ProtocolError):
        decode_scores(from_json(b'{"scores": {"a": [%s]}}' % (b"9" * 400)), 1, "a")
    with pytest.raises(ProtocolError):
        from_json(b'{"scores": {"a": [%s]}}' % (b"9" * 5000))


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_json_is_strict(constant):
    with pytest.raises(ProtocolError, match="is no number"):
        from_json(b'{"a": %s}' % constant.encode())
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"a": float(constant.replace("Infinity", "inf"))})


def test_no_random_bytes_do_more_than_fail():
    generator = np.random.default_rng(0)
    whole = to_json(
        encode_samples(
            Samples(["p"], [{}], torch.zeros(1, dtype=torch.int64), torch.zeros(1, 3, 4, 4).byte()),
            [0],
            "png",
        )
    )
    survived = 0
    for _ in range(500):
        body = bytearray(whole)
        for place in generator.integers(0, len(body), 3):
            body[place] = generator.integers(0, 256)
        try:
            read_request(from_json(bytes(body)), "images").samples()
            survived += 1
        except ProtocolError:
            pass
    assert survived < 500
    json.loads(whole)
