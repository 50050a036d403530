"""Rows without padding between prompt and response."""

import torch

from rlfactory.inspection.texts import Texts, texts_of
from rlfactory.rollout import Tokens


def test_padding_goes_to_the_right() -> None:
    empty = torch.zeros(2, 3)
    tokens = Tokens(
        prompt=torch.tensor([[1, 2], [9, 3]]),
        prompt_mask=torch.tensor([[True, True], [False, True]]),
        response=torch.tensor([[4, 5, 9], [6, 7, 8]]),
        mask=torch.tensor([[True, True, False], [True, True, True]]),
        ended=torch.tensor([True, False]),
        log_prob=empty,
        value=empty,
    )
    texts = texts_of(tokens)
    assert texts.ids.tolist() == [[1, 2, 4, 5], [3, 6, 7, 8]]
    assert texts.read.int().tolist() == [[0, 0, 1, 1], [0, 1, 1, 1]]
    assert texts.foretold.int().tolist() == [[0, 1, 1, 0], [1, 1, 1, 0]]
    assert texts.ends.int().tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    assert texts.next.tolist() == [4, 5, 6, 7, 8]


def test_every_token_is_foretold_once(texts: Texts) -> None:
    assert torch.equal(texts.foretold.roll(1, 1), texts.read)
    assert bool((texts.ends & texts.foretold).sum(1).eq(1).all())
