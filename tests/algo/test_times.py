import torch

from rlfactory import keyed
from rlfactory.algo.times import stratified


def test_one_time_falls_into_each_bin() -> None:
    draws = keyed.uniform(0, "times", [0], range(50), [4])
    times = stratified(draws)
    assert times.shape == draws.shape
    assert torch.equal((times * 4).floor(), torch.arange(4.0).expand(50, 4))
    assert times.min() >= 0
    assert times.max() < 1


def test_bins_are_filled_evenly() -> None:
    times = stratified(keyed.uniform(0, "times", [0], range(2000), [4]))
    within = times * 4 - torch.arange(4)
    assert abs(within.mean() - 0.5) < 0.01
    assert abs(times.mean() - 0.5) < 0.01


def test_by_hand() -> None:
    times = stratified(torch.tensor([[0.0, 0.5], [0.5, 0.0]]))
    assert times.tolist() == [[0.0, 0.75], [0.25, 0.5]]
