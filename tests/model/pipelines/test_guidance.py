"""Classifier-free guidance, and the time input."""

from functools import partial

import pytest
import torch
from torch import Tensor

from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.pipelines.guidance import classifier_free, guided, network_times


def network(x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
    return x * t.view(-1, 1) + text["a"] * text["b"]


def test_guidance_starts_at_the_negative_and_goes_through_the_positive() -> None:
    x, t = torch.tensor([[1.0], [2.0]]), torch.tensor([0.5, 0.25])
    positive = {"a": torch.tensor([[1.0], [3.0]]), "b": torch.ones(2, 1, requires_grad=True)}
    negative = {"a": torch.tensor([[2.0]]), "b": torch.ones(1, 1, requires_grad=True)}
    # at 1 it is the positive: .5 + 1 and .5 + 3; at 3 it is n + 3 (p - n) = 2.5 - 3 and 2.5 + 3
    assert guided(
        network, x, t, positive, negative, partial(classifier_free, guidance=1.0)
    ).tolist() == [[1.5], [3.5]]
    found = guided(network, x, t, positive, negative, partial(classifier_free, guidance=3.0))
    assert found.tolist() == [[-0.5], [5.5]]
    found.sum().backward()
    assert positive["b"].grad.tolist() == [[3.0], [9.0]]
    assert negative["b"].grad.tolist() == [[-8.0]]


def test_without_a_negative_there_is_one_row_a_sample() -> None:
    x, t, text = torch.ones(2, 1), torch.ones(2), {"a": torch.ones(2, 1), "b": torch.ones(2, 1)}
    seen: list[int] = []

    def counted(x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        seen.append(len(x))
        return network(x, t, text)

    assert guided(counted, x, t, text, None, torch.add).tolist() == [[2.0], [2.0]]
    guided(counted, x, t, text, text, torch.add)
    assert seen == [2, 4]


@pytest.mark.parametrize(
    ("kind", "times"), [("exact", [903.7, 500.0, 8.9]), ("truncated", [903.0, 500.0, 8.0])]
)
def test_times_are_thousandths_whole_or_not(kind: str, times: list[float]) -> None:
    found = network_times(torch.tensor([0.9037, 0.5, 0.0089]), kind)
    torch.testing.assert_close(found, torch.tensor(times))
