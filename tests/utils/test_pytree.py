import torch

from rlfactory.rollout import Condition
from rlfactory.utils.pytree import concat, index_rows


def test_shared_rows_are_selected_and_appended_without_copies() -> None:
    embeddings = {"a": torch.arange(3.0)}
    first = Condition(embeddings, torch.tensor([0, 0, 1]))
    second = Condition(embeddings, torch.tensor([2, 2]))
    both = concat([first, second])
    assert both.tensors["a"] is embeddings["a"]
    picked = index_rows(both, torch.tensor([4, 0]))
    assert picked.tensors["a"] is embeddings["a"]
    assert picked.rows(torch.arange(2)).tensors["a"].tolist() == [2.0, 0.0]


def test_other_embeddings_are_appended() -> None:
    parts = [Condition({"a": torch.tensor([v])}, torch.tensor([0, 0])) for v in (5.0, 7.0)]
    both = concat(parts)
    assert both.rows(torch.arange(4)).tensors["a"].tolist() == [5.0, 5.0, 7.0, 7.0]


def test_an_index_is_copied_once_to_each_device() -> None:
    class Index(torch.Tensor):
        copies = 0

        def to(self, *args: object, **options: object) -> torch.Tensor:
            Index.copies += 1
            return torch.arange(1, device="meta")

    index = torch.arange(1).as_subclass(Index)
    nest = [{name: torch.zeros(2, 3, device="meta") for name in "abc"}]
    index_rows(nest[0], index)
    assert Index.copies == 1
