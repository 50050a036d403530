import torch
from torch import Tensor, nn

from rlfactory.batch import Batch, Outputs
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.model.weight_sets import REFERENCE, WeightSets
from rlfactory.regularizer.coefficient import Fixed
from rlfactory.regularizer.kl_flow_grpo import KLFlowGRPO
from rlfactory.rollout import Condition, Transitions

# Provenance: diffusion.md appendix A (inputs) and 1.9, row "flow_grpo": v_ref = 0.9 v at
# sigma 0.75,
# the sixth step of the uniform ten-step schedule of shift 3, noise 0.7.
X = torch.tensor([[0.5, -1, 0.25, 2], [1.5, 0.1, -0.3, -0.7]]).view(2, 1, 2, 2)
V = torch.tensor([[0.2, 0.4, -0.6, 1], [-1, 0.3, 0.5, 0.05]]).view(2, 1, 2, 2)
NEXT = torch.tensor([[0.45, -1.05, 0.40, 1.80], [1.60, 0.05, -0.40, -0.70]]).view(2, 1, 2, 2)
T, T_NEXT = torch.full((2,), 0.75), torch.full((2,), 2 / 3)
GOLDEN = [1.427886e-5, 1.228806e-5]


class Scaled:
    """Predicts V times its only parameter, which was 0.9 in the reference."""

    def __init__(self) -> None:
        self.scale = nn.Parameter(torch.tensor(0.9))
        self.weights = WeightSets({"scale": self.scale})
        self.weights.add(REFERENCE)
        self.scale.data = torch.tensor(1.0)

    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        return self.scale * V


def test_golden() -> None:
    model, nothing = Scaled(), torch.zeros(2)
    batch = Batch(
        X,
        T,
        X,
        Condition({}),
        nothing,
        Transitions(T, T_NEXT, X, NEXT, nothing),
        sample=torch.arange(2),
    )
    prediction = model.predict(X, T, batch.condition)
    step = FlowSDE(noise_level=0.7).step(X, prediction, T, T_NEXT, next=NEXT)
    penalty, measured = KLFlowGRPO(FlowSDE(noise_level=0.7), coefficient=Fixed(value=2.0)).penalty(
        model, batch, Outputs(prediction, step)
    )
    kl = measured["kl/reference"]
    torch.testing.assert_close(kl, torch.tensor(GOLDEN), rtol=1e-4, atol=0)
    torch.testing.assert_close(penalty, 2 * kl.mean())
    # (s - 0.9)^2 grows at s = 1 by 20 times its value
    penalty.backward()
    torch.testing.assert_close(model.scale.grad, 20 * penalty.detach(), rtol=1e-3, atol=0)
