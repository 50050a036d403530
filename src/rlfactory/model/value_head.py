"""The critic on a language model: one number for each position, from the final hidden state."""

from typing import Literal

import torch
from torch import Tensor, nn

Shape = Literal["mlp", "linear"]
Start = Literal["zero", "orthogonal", "default"]


class ValueHead(nn.Module):
    """`linear`: d to 1 (OpenAI, TRL). `mlp`: d to 4 d, ReLU, to 1 (the walkthrough).

    `start` says how the layers begin: `zero` orthogonally with a last layer of 0, so that the first
    values are 0 and bias no advantage; `orthogonal` with gains of sqrt 2 and 1; `default` as torch
    does. `detach` keeps the critic's gradient out of the language model.
    """

    def __init__(self, width: int, *, shape: Shape, start: Start, detach: bool, seed: int) -> None:
        super().__init__()
        self.detach = detach
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            sizes = [(width, 4 * width), (4 * width, 1)] if shape == "mlp" else [(width, 1)]
            layers = [nn.Linear(*size) for size in sizes]
            if start != "default":
                for layer in layers:
                    nn.init.orthogonal_(layer.weight, 2**0.5 if layer is not layers[-1] else 1.0)
                    nn.init.zeros_(layer.bias)
        if start == "zero":
            nn.init.zeros_(layers[-1].weight)
        between = [nn.ReLU()] if shape == "mlp" else []
        self.layers = nn.Sequential(*layers[:1], *between, *layers[1:])

    def forward(self, hidden: Tensor) -> Tensor:
        """Values `[...]` of hidden states `[..., d]`, in float32."""
        hidden = hidden.detach() if self.detach else hidden
        value: Tensor = self.layers(hidden.float())
        return value[..., 0]
