"""What of a micro-batch is not finite: what it was made of, what the network said, and the loss."""

from collections.abc import Mapping

import torch
from torch import Tensor

from rlfactory.algo.base import Loss
from rlfactory.batch import Batch, Outputs, TokenBatch, TokenOutputs

LOSS = "the loss"
Faults = dict[str, Tensor]
"""By name where something is not finite, bool of the shape that it has."""


def faults(batch: Batch | TokenBatch, loss: Loss, total: Tensor) -> Faults:
    """All that an update may not come from; `total` is the loss with its penalty."""
    of_inputs = _of_tokens(batch) if isinstance(batch, TokenBatch) else _of_steps(batch)
    return {**of_inputs, **_of_outputs(loss.outputs), LOSS: _wrong(total)}


def is_sound(found: Faults) -> bool:
    """Whether there is none: the device is waited for once, however many tensors there are."""
    device = found[LOSS].device
    return not bool(torch.stack([where.any().to(device) for where in found.values()]).any())


def details(loss: Loss, metrics: Mapping[str, Tensor]) -> Faults:
    """Where else to look, too dear for every micro-batch: predictions, and what would be logged."""
    found = {name: _wrong(values) for name, values in metrics.items()}
    if isinstance(loss.outputs, Outputs):
        found["the network's prediction"] = _wrong(loss.outputs.prediction)
    return found


def rows(found: Faults, batch: Batch | TokenBatch) -> dict[str, list[int]]:
    """The items of each that is not finite; none of what belongs to no item, as a mean."""
    return {name: _rows_of(where, batch) for name, where in found.items() if where.any()}


def _rows_of(where: Tensor, batch: Batch | TokenBatch) -> list[int]:
    where = _by_item(where, batch)
    if not where.ndim or len(where) != len(batch):
        return []
    numbers: list[int] = where.reshape(len(where), -1).any(1).nonzero().flatten().tolist()
    return numbers


def _of_steps(batch: Batch) -> Faults:
    found = {"advantages": _wrong(batch.advantage)}
    if batch.taken is not None:
        found["log-probabilities as sampled"] = _wrong(batch.taken.log_prob)
    if batch.old is not None:
        # NaN says that there is none
        found["remembered likelihoods"] = batch.old.isinf()
    return found


def _of_tokens(batch: TokenBatch) -> Faults:
    """Of real tokens alone: what padding holds does not matter."""
    tokens = batch.tokens
    named = {
        "advantages": batch.advantage,
        "returns": batch.returns,
        "log-probabilities as sampled": tokens.log_prob,
        "values": tokens.value,
    }
    return {name: _wrong(values) & tokens.mask for name, values in named.items()}


def _of_outputs(outputs: object) -> Faults:
    found: Faults = {}
    match outputs:
        case Outputs(step=step, log_ratio=ratio):
            if step is not None and step.log_prob is not None:
                found["log-probabilities"] = _impossible(step.log_prob)
            if ratio is not None:
                found["log-ratios"] = _wrong(ratio)
        case TokenOutputs(log_prob=log_prob, value=value):
            found["log-probabilities"] = _impossible(log_prob)
            found["the critic's values"] = _wrong(value)
    return found


def _by_item(wrong: Tensor, batch: Batch | TokenBatch) -> Tensor:
    """Values of real tokens, one after another, put back to their responses."""
    if isinstance(batch, TokenBatch) and wrong.shape == (int(batch.tokens.mask.sum()),):
        where = torch.zeros_like(batch.tokens.mask)
        where[batch.tokens.mask] = wrong.to(where.device)
        return where
    return wrong


def _wrong(values: Tensor) -> Tensor:
    return ~torch.isfinite(values.detach())


def _impossible(log_prob: Tensor) -> Tensor:
    """A likelihood of 0 is none: a token may have left the nucleus that it was drawn from."""
    return log_prob.detach().isnan() | log_prob.detach().isposinf()
