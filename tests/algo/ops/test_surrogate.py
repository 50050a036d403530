import pytest
import torch

from rlfactory.algo.ops.surrogate import clipped_surrogate, ratio_metrics

CLIP = 0.2


def gradient(ratio: float, advantage: float) -> float:
    log_ratio = torch.tensor([ratio]).log().requires_grad_(True)
    losses, _ = clipped_surrogate(log_ratio, torch.tensor([advantage]), CLIP)
    losses.sum().backward()
    assert log_ratio.grad is not None
    return float(log_ratio.grad)


def test_at_ratio_one_the_loss_is_minus_the_advantage_and_the_gradient_reinforces() -> None:
    advantage = torch.tensor([-2.0, 0.0, 0.5, 3.0])
    log_prob = torch.zeros(4, requires_grad=True)
    losses, ratio = clipped_surrogate(log_prob - log_prob.detach(), advantage, CLIP)
    assert torch.equal(ratio, torch.ones(4))
    torch.testing.assert_close(losses, -advantage)
    losses.sum().backward()
    # REINFORCE: the gradient of -A log p
    torch.testing.assert_close(log_prob.grad, -advantage)


@pytest.mark.parametrize(
    ("ratio", "advantage", "alive"),
    [
        (1.3, 1.0, False),
        (1.3, -1.0, True),
        (0.7, 1.0, True),
        (0.7, -1.0, False),
        (1.1, 1.0, True),
        (0.9, -1.0, True),
    ],
)
def test_a_gradient_dies_only_where_it_would_go_on_in_its_direction(
    ratio: float, advantage: float, alive: bool
) -> None:
    expected = -advantage * ratio if alive else 0.0
    assert gradient(ratio, advantage) == pytest.approx(expected, rel=1e-5)


def test_the_loss_is_never_below_the_unclipped_one() -> None:
    generator = torch.Generator().manual_seed(0)
    log_ratio, advantage = torch.randn(2, 500, generator=generator).unbind()
    losses, ratio = clipped_surrogate(log_ratio, advantage, CLIP)
    assert (losses >= -advantage * ratio).all()
    inside = (ratio - 1).abs() < CLIP
    torch.testing.assert_close(losses[inside], (-advantage * ratio)[inside])


def test_metrics_of_a_ratio() -> None:
    metrics = ratio_metrics(torch.tensor([1.0, 1.1, 0.7], requires_grad=True), CLIP)
    assert not any(value.requires_grad for value in metrics.values())
    torch.testing.assert_close(metrics["ratio/mean"], torch.tensor([1.0, 1.1, 0.7]))
    torch.testing.assert_close(metrics["ratio/clip_fraction"], torch.tensor([0.0, 0.0, 1.0]))
    torch.testing.assert_close(metrics["ratio/max_dev"], torch.tensor([0.0, 0.1, 0.3]))
    expected = 0.5 * torch.tensor([1.0, 1.1, 0.7]).log() ** 2
    torch.testing.assert_close(metrics["kl/approx"], expected)
