from pathlib import Path

import pytest
import torch
from torch import Tensor

from rlfactory.model.conditioning import encode_once, guided, network_times
from rlfactory.model.prompt_cache import Embeddings, Text

CPU = torch.device("cpu")


def test_each_prompt_is_encoded_once_and_rows_follow_the_question() -> None:
    asked: list[list[str]] = []

    def encode(prompts: list[str]) -> Text:
        asked.append(prompts)
        assert not torch.is_grad_enabled()
        return {"length": torch.tensor([[float(len(p))] for p in prompts])}

    known = Embeddings(None, 1000)
    first = encode_once(["bbb", "a", "bbb"], known, encode, CPU).tensors["length"]
    again = encode_once(["cc", "a"], known, encode, CPU).tensors["length"]
    assert asked == [["bbb"], ["a"], ["cc"]]
    assert first.tolist() == [[3.0], [1.0], [3.0]]
    assert again.tolist() == [[2.0], [1.0]]


def test_prompts_that_are_truncated_alike_stay_two_prompts(tmp_path: Path) -> None:
    asked: list[str] = []

    def encode(prompts: list[str]) -> Text:
        asked.extend(prompts)
        return {"first_words": torch.tensor([[float(ord(p[0]))] for p in prompts])}

    long, longer = "a " * 100, "a " * 100 + "red circle"
    for known in (Embeddings(None, 1000), Embeddings(tmp_path, 1000)):
        asked.clear()
        encode_once([long], known, encode, CPU)
        assert known.get(longer) is None
        rows = encode_once([long, longer], known, encode, CPU).tensors["first_words"]
        assert asked == [long, longer]
        assert torch.equal(rows[0], rows[1])
        assert None not in (known.get(long), known.get(longer))
    assert None not in [Embeddings(tmp_path, 0).get(prompt) for prompt in (long, longer)]


def test_more_than_is_kept_can_be_asked_at_once() -> None:
    def encode(prompts: list[str]) -> Text:
        return {"length": torch.tensor([[float(len(p))] for p in prompts])}

    known = Embeddings(None, 8)  # two rows of four bytes
    rows = encode_once(["a", "bb", "ccc", "a"], known, encode, CPU).tensors["length"]
    assert rows.tolist() == [[1.0], [2.0], [3.0], [1.0]]
    assert [known.holds([p]) for p in ("a", "bb", "ccc")] == [False, True, True]


def network(x: Tensor, t: Tensor, text: Text) -> Tensor:
    return x * t.view(-1, 1) + text["a"] * text["b"]


def test_guidance_starts_at_the_negative_and_goes_through_the_positive() -> None:
    x, t = torch.tensor([[1.0], [2.0]]), torch.tensor([0.5, 0.25])
    positive = {"a": torch.tensor([[1.0], [3.0]]), "b": torch.ones(2, 1, requires_grad=True)}
    negative = {"a": torch.tensor([[2.0]]), "b": torch.ones(1, 1, requires_grad=True)}
    # at 1 it is the positive: .5 + 1 and .5 + 3; at 3 it is n + 3 (p - n) = 2.5 - 3 and 2.5 + 3
    assert guided(network, x, t, positive, negative, 1.0).tolist() == [[1.5], [3.5]]
    found = guided(network, x, t, positive, negative, 3.0)
    assert found.tolist() == [[-0.5], [5.5]]
    found.sum().backward()
    assert positive["b"].grad.tolist() == [[3.0], [9.0]]
    assert negative["b"].grad.tolist() == [[-8.0]]


def test_without_a_negative_there_is_one_row_a_sample() -> None:
    x, t, text = torch.ones(2, 1), torch.ones(2), {"a": torch.ones(2, 1), "b": torch.ones(2, 1)}
    seen: list[int] = []

    def counted(x: Tensor, t: Tensor, text: Text) -> Tensor:
        seen.append(len(x))
        return network(x, t, text)

    assert guided(counted, x, t, text, None, 5.0).tolist() == [[2.0], [2.0]]
    guided(counted, x, t, text, text, 5.0)
    assert seen == [2, 4]


@pytest.mark.parametrize(
    ("kind", "times"), [("exact", [903.7, 500.0, 8.9]), ("truncated", [903.0, 500.0, 8.0])]
)
def test_times_are_thousandths_whole_or_not(kind: str, times: list[float]) -> None:
    found = network_times(torch.tensor([0.9037, 0.5, 0.0089]), kind)
    torch.testing.assert_close(found, torch.tensor(times))
