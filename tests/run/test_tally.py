import pytest
import torch

from rlfactory.run.tally import Tally


def test_every_element_counts_once_however_it_came() -> None:
    tally = Tally()
    tally.extend({"loss/policy": torch.tensor([1.0, 2.0, 3.0])})
    tally.extend({"loss/policy": torch.tensor([[10.0]])})
    tally.add("loss/policy", 4.0)
    assert tally.means() == {"loss/policy": pytest.approx(20 / 5)}


def test_scalars_and_other_types_are_taken() -> None:
    tally = Tally()
    tally.extend({"a": torch.tensor(2.0), "b": torch.tensor([1.0], dtype=torch.double)})
    tally.extend({"b": torch.tensor([2.0])})
    assert tally.means() == {"a": 2.0, "b": 1.5}


def test_of_a_largest_deviation_the_largest_is_kept() -> None:
    tally = Tally()
    tally.extend({"ratio/max_dev": torch.tensor([0.1, 0.7])})
    tally.extend({"ratio/max_dev": torch.tensor([0.2])})
    assert tally.largest("ratio/max_dev") == pytest.approx(0.7)
    assert tally.means()["ratio/max_dev"] == pytest.approx(0.7)


def test_an_empty_tally_has_no_means() -> None:
    assert Tally().means() == {}


def test_the_latest_of_a_family() -> None:
    tally = Tally()
    for value in (1.0, 2.0):
        tally.extend({"kl/a": torch.tensor([value]), "loss/b": torch.tensor([value])})
    tally.extend({"kl/c": torch.tensor([3.0, 5.0])})
    assert tally.latest_of("kl/") == {"kl/a": 2.0, "kl/c": 4.0}
