from collections.abc import Callable

import pytest
import torch

from rlfactory.model.base import ImageModel, NFECounter, evaluation_metrics
from rlfactory.utils.errors import ModelError


def test_rows_with_a_gradient_are_counted_apart(linear: Callable[..., ImageModel]) -> None:
    model = linear()
    condition = model.encode(["a", "b", "c"])
    x, t = torch.zeros(3, 1, 2, 2), torch.ones(3)
    model.predict(x, t, condition)
    with torch.no_grad():
        model.predict(x, t, condition)
        model.predict(x[:1], t[:1], condition)
    assert (model.evaluations.trained, model.evaluations.forward) == (3, 4)


def test_what_was_taken_is_counted_no_more() -> None:
    counted = NFECounter()
    counted.add(2)
    with torch.no_grad():
        counted.add(5)
    assert counted.read_and_reset() == NFECounter(forward=5, trained=2)
    assert counted.read_and_reset() == NFECounter(0, 0)
    counted.add(1)
    assert counted == NFECounter(forward=0, trained=1)


def test_each_model_has_its_own_count(linear: Callable[..., ImageModel]) -> None:
    one, other = linear(), linear()
    one.evaluations.add(3)
    assert other.evaluations == NFECounter(0, 0)


def test_metrics_are_of_a_sample() -> None:
    found = evaluation_metrics(NFECounter(60, 0), NFECounter(18, 36), samples=12)
    assert found == {"nfe/sample": 5, "nfe/compare": 1.5, "nfe/train": 3}


def test_each_pass_is_told_before_it_is_made() -> None:
    def leave() -> None:
        raise KeyError

    counted = NFECounter(on_pass=leave)
    with pytest.raises(KeyError):
        counted.add(3)
    assert counted == NFECounter()


def test_padding_is_told_and_not_counted() -> None:
    told: list[int] = []
    counted = NFECounter(on_pass=lambda: told.append(1), is_padding=True)
    counted.add(3)
    assert (counted, told) == (NFECounter(), [1])


def test_a_model_without_an_encoder_says_so(linear: Callable[..., ImageModel]) -> None:
    with pytest.raises(ModelError, match="LinearModel does not encode images of the data"):
        ImageModel.encode_images(linear(), torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
