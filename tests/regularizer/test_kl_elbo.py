import pytest
import torch
from torch import Tensor, nn

from rlfactory.batch import Batch, Outputs
from rlfactory.model.weight_sets import REFERENCE, WeightSets
from rlfactory.regularizer.coefficient import Fixed
from rlfactory.regularizer.kl_elbo import KLELBO, sde_std
from rlfactory.rollout import Condition

# Provenance: diffusion.md appendix A (v) and 1.9: the golden v-based divergences of v_ref = 0.9 v,
# divided by hand by the row "ELBO", 2 * .49 * sigma / (1 - sigma) = 2.94 at sigma .75.
V = torch.tensor([[0.2, 0.4, -0.6, 1], [-1, 0.3, 0.5, 0.05]]).view(2, 1, 2, 2)
GOLDEN = [3.9e-3 / 2.94, 3.35625e-3 / 2.94]


class Scaled:
    """Predicts V times its only parameter, which was 0.9 in the reference."""

    def __init__(self) -> None:
        self.scale = nn.Parameter(torch.tensor(0.9))
        self.weights = WeightSets({"scale": self.scale})
        self.weights.add(REFERENCE)
        self.scale.data = torch.tensor(1.0)

    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        return self.scale * V


def measure(t: Tensor, **options: float) -> tuple[Tensor, Tensor, Scaled]:
    model = Scaled()
    batch = Batch(V, t, V, Condition({}), torch.zeros(2), sample=torch.arange(2))
    outputs = Outputs(model.predict(V, t, batch.condition))
    kl = KLELBO(coefficient=Fixed(value=2.0), **options)
    penalty, measured = kl.penalty(model, batch, outputs)
    return penalty, measured["kl/reference"], model


def test_golden() -> None:
    penalty, kl, model = measure(torch.full((2,), 0.75))
    torch.testing.assert_close(kl, torch.tensor(GOLDEN), rtol=1e-5, atol=0)
    torch.testing.assert_close(penalty, 2 * kl.mean())
    # (s - 0.9)^2 grows at s = 1 by 20 times its value
    penalty.backward()
    torch.testing.assert_close(model.scale.grad, 20 * penalty.detach(), rtol=1e-3, atol=0)


# The two ends by the published formula; .008929 is the last time of the ten-step diffusers schedule
@pytest.mark.parametrize(
    ("sigma", "std"),
    [
        (1.0, 7.0),
        (0.995, 0.7 * 99.5**0.5),
        (0.5, 0.7),
        (0.008929, 0.7 * (0.008929 / 0.991071) ** 0.5),
    ],
)
def test_the_noise_is_the_published_one(sigma: float, std: float) -> None:
    found = sde_std(torch.tensor([sigma], dtype=torch.float64), 0.7, 1e-3)
    assert found.item() == pytest.approx(std, rel=1e-9)


def test_it_is_finite_at_both_ends() -> None:
    penalty, kl, model = measure(torch.tensor([0.0, 1.0]))
    assert kl.isfinite().all()
    penalty.backward()
    assert model.scale.grad is not None
    assert model.scale.grad.isfinite()
    # at 0 as at `low`, up to the factor 1 / (1 - sigma)
    _, lowest, _ = measure(torch.tensor([1e-3, 1.0]))
    assert kl[0].item() == pytest.approx(lowest[0].item(), rel=2e-3)


def test_less_noise_weighs_more() -> None:
    _, kl, _ = measure(torch.full((2,), 0.75), noise_level=0.35)
    torch.testing.assert_close(kl, 4 * torch.tensor(GOLDEN), rtol=1e-5, atol=0)
