import pytest

from rlfactory.model.decay import Decay, old_policy_decay, power_decay

# Provenance: diffusion.md 1.13, return_decay of DiffusionNFT and Flow-Factory's power schedule.


@pytest.mark.parametrize(
    ("kind", "step", "expected"),
    [
        ("none", 0, 0.0),
        ("none", 5000, 0.0),
        ("nft_1", 0, 0.0),
        ("nft_1", 100, 0.1),
        ("nft_1", 500, 0.5),
        ("nft_1", 1000, 0.5),
        ("nft_2", 74, 0.0),
        ("nft_2", 75, 0.0),
        ("nft_2", 100, 0.1875),
        ("nft_2", 208, 0.9975),
        ("nft_2", 209, 0.999),
    ],
)
def test_golden_decay_of_the_old_policy(kind: Decay, step: int, expected: float) -> None:
    assert old_policy_decay(kind, step) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.1), (1, 0.181818), (10, 0.55), (80, 0.9), (5000, 0.9)]
)
def test_golden_power_decay(step: int, expected: float) -> None:
    assert power_decay(step, 0.9) == pytest.approx(expected, abs=1e-6)


def test_decays_rise_and_stay_below_one() -> None:
    for values in (
        [old_policy_decay("nft_1", s) for s in range(2000)],
        [old_policy_decay("nft_2", s) for s in range(2000)],
        [power_decay(s, 0.99) for s in range(2000)],
    ):
        assert values == sorted(values)
        assert 0 <= values[0] <= values[-1] < 1
