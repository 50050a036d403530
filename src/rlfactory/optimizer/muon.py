"""Muon (K. Jordan 2024; step sizes of arXiv 2502.16982) on matrices, AdamW on all else."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn

from rlfactory.utils.types import Faults, Fraction, NonNegative, Positive, PositiveInt

IS_MUON = "is_muon"
"""The key of a parameter group that tells which of the two moves it."""
_ENDS = ("x_embedder", "context_embedder", "proj_out")
"""The inputs and the output of diffusers' transformers (SD3, FLUX)."""


class Muon(torch.optim.Optimizer):
    """`torch.optim.Muon` and `torch.optim.AdamW` as one optimizer with one state.

    A step of Muon is the momentum's nearest semi-orthogonal matrix, times `0.2 lr sqrt(max(rows,
    columns))`, which is as long as an AdamW step: one learning rate serves both.

    Args:
        params: Parameter groups, as for AdamW; a group's own options (`lr`, `weight_decay`) hold.
        trained_model: The model, whose `hidden_matrices` Muon moves; AdamW moves all else.
        lr: The learning rate of both.
        momentum: Decay of Muon's momentum.
        nesterov: Whether Muon looks ahead by a step of momentum.
        ns_steps: Newton-Schulz iterations that orthogonalise the momentum.
        betas: Decay of AdamW's moments.
        eps: Added to the root of AdamW's second moment.
        weight_decay: Decoupled weight decay of both.
        fused: AdamW: whether one kernel moves all tensors.
    """

    def __init__(
        self,
        params: Sequence[Mapping[str, Any]],
        trained_model: Any,
        *,
        lr: Positive = 1e-4,
        momentum: Fraction = 0.95,
        nesterov: bool = True,
        ns_steps: PositiveInt = 5,
        betas: list[float] | None = None,
        eps: Positive = 1e-8,
        weight_decay: NonNegative = 1e-4,
        fused: bool | None = None,
    ) -> None:
        chosen = {id(parameter) for parameter in hidden_matrices(trained_model)}
        groups = _split(params, chosen)
        self._parts: dict[bool, torch.optim.Optimizer] = {}
        # each completes its groups, which are the same dictionaries as this optimizer's
        if own := [group for group in groups if group[IS_MUON]]:
            self._parts[True] = torch.optim.Muon(
                own,
                lr=lr,
                weight_decay=weight_decay,
                momentum=momentum,
                nesterov=nesterov,
                ns_steps=ns_steps,
                adjust_lr_fn="match_rms_adamw",
            )
        if rest := [group for group in groups if not group[IS_MUON]]:
            beta1, beta2 = betas or (0.9, 0.999)
            self._parts[False] = torch.optim.AdamW(
                rest,
                lr=lr,
                betas=(beta1, beta2),
                eps=eps,
                weight_decay=weight_decay,
                fused=fused,
            )
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay})

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """Matrices are whole: shards of one have no orthogonal neighbour."""
        if run["hardware"].get("strategy") == "fsdp2":
            message = "fsdp2 shards matrices, which this optimizer needs as a whole"
            yield "optimizer", message, "optimizer=adamw"

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for is_muon, part in self._parts.items():
            # loading a state replaces both
            part.param_groups = [g for g in self.param_groups if g[IS_MUON] == is_muon]
            part.state = self.state
            part.step()
        return loss


def _split(groups: Sequence[Mapping[str, Any]], chosen: Collection[int]) -> list[dict[str, Any]]:
    """Each group in two: its parameters for Muon, and the others; empty ones are left out."""
    found = []
    for group in groups:
        for is_muon in (True, False):
            own = [p for p in group["params"] if (id(p) in chosen) == is_muon]
            if own:
                found.append({**group, "params": own, IS_MUON: is_muon})
    return found


def hidden_matrices(model: Any) -> list[nn.Parameter]:
    """The trained matrices between a network's input and its output.

    Embeddings and output projections are none: a step of equal size in all directions does not fit
    rows that are rarely used. Nor is the critic, whose learning rate is its own.

    Args:
        model: an ImageModel or TextModel.
    """
    network = getattr(model, "network", None)  # an adapter of one's own may have none
    modules = () if network is None else _outer_modules(network)
    outer = {id(p) for module in modules for p in module.parameters()}
    named = cast("Mapping[str, nn.Parameter]", model.weights.parameters)
    return [
        parameter
        for name, parameter in named.items()
        if parameter.ndim == 2 and not name.startswith("critic.") and id(parameter) not in outer
    ]


def _outer_modules(network: nn.Module) -> list[nn.Module]:
    found: list[nn.Module] = [m for m in network.modules() if isinstance(m, nn.Embedding)]
    output = getattr(network, "get_output_embeddings", lambda: None)()
    ends = [output, *(getattr(network, name, None) for name in _ENDS)]
    return [*found, *(module for module in ends if module is not None)]
