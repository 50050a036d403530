"""Finds what of a micro-batch is not finite: its inputs, the network's outputs, or the loss."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlfactory.algo.base import Loss
from rlfactory.batch import Batch, Outputs, TokenBatch, TokenOutputs

LOSS = "the loss"
Masks = dict[str, Tensor]
"""By the name of a tensor, where it is not finite: bool, of the tensor's shape."""


def find_nonfinite(batch: Batch | TokenBatch, loss: Loss, total: Tensor) -> Masks:
    """Masks of all that an update must not be computed from; nothing here waits for the device.

    Args:
        batch: the micro-batch.
        loss: its loss, with the network's outputs.
        total: the loss with its penalty.
    """
    inputs = _token_inputs(batch) if isinstance(batch, TokenBatch) else _step_inputs(batch)
    return {**inputs, **_outputs(loss.outputs), LOSS: _nonfinite(total)}


@dataclass(frozen=True)
class CheckedMicroBatch:
    """What a report needs of a micro-batch, without its graph and its inputs.

    Attributes:
        number: its number in the update, from 0.
        masks: where it is not finite.
        loss: its loss; `outputs` holds the prediction alone, and only of the first micro-batch of
            an update that is not finite.
        metrics: what was measured of its items.
    """

    number: int
    masks: Masks
    loss: Loss
    metrics: Mapping[str, Tensor]


class UpdateChecks:
    """Which micro-batches of an update are not finite; read from the device once an update."""

    def __init__(self) -> None:
        self._checked: list[CheckedMicroBatch] = []
        self._flags: list[Tensor] = []
        self._seen: Tensor | None = None
        self._predictions: dict[torch.Size, Tensor] = {}

    def add(self, masks: Masks, loss: Loss, metrics: Mapping[str, Tensor]) -> None:
        """Note a micro-batch; waits for nothing."""
        device = masks[LOSS].device
        flag = torch.stack([mask.any().to(device) for mask in masks.values()]).any()
        is_first = flag if self._seen is None else flag & ~self._seen
        self._seen = flag if self._seen is None else flag | self._seen
        prediction, shape = getattr(loss.outputs, "prediction", None), None
        if prediction is not None:
            # Which one a report will need is known on the device only, so it is selected there: a
            # reference to each would keep the predictions of a whole update.
            prediction, shape = prediction.detach(), prediction.shape
            kept = self._predictions.get(shape, prediction)
            self._predictions[shape] = torch.where(is_first, prediction, kept)
        light = Loss(loss.value.detach(), shape, {})
        self._checked.append(CheckedMicroBatch(len(self._flags), masks, light, metrics))
        self._flags.append(flag)

    def first_nonfinite(self) -> CheckedMicroBatch | None:
        """The first micro-batch that is not finite; waits for the device once."""
        flags = torch.stack(self._flags).tolist() if self._flags else []
        if True not in flags:
            return None
        found = self._checked[flags.index(True)]
        shape = found.loss.outputs
        outputs = None if shape is None else Outputs(self._predictions[shape])
        return replace(found, loss=replace(found.loss, outputs=outputs))


def details(loss: Loss, metrics: Mapping[str, Tensor]) -> Masks:
    """Masks of the prediction and the metrics: too slow for every micro-batch, but for a report."""
    masks = {name: _nonfinite(values) for name, values in metrics.items()}
    if isinstance(loss.outputs, Outputs):
        masks["the network's prediction"] = _nonfinite(loss.outputs.prediction)
    return masks


def rows(masks: Masks, batch: Batch | TokenBatch) -> dict[str, list[int]]:
    """The affected items of each mask that is set; none for a mean, which belongs to no item."""
    return {name: _rows(mask, batch) for name, mask in masks.items() if mask.any()}


def _rows(mask: Tensor, batch: Batch | TokenBatch) -> list[int]:
    mask = _per_item(mask, batch)
    if not mask.ndim or len(mask) != len(batch):
        return []
    numbers: list[int] = mask.reshape(len(mask), -1).any(1).nonzero().flatten().tolist()
    return numbers


def _step_inputs(batch: Batch) -> Masks:
    masks = {"advantages": _nonfinite(batch.advantage)}
    if batch.replayed is not None:
        masks["log-probabilities as sampled"] = _nonfinite(batch.replayed.log_prob)
    if batch.old_log_prob is not None:
        # NaN stands for a sample that needs none
        masks["remembered likelihoods"] = batch.old_log_prob.isinf()
    return masks


def _token_inputs(batch: TokenBatch) -> Masks:
    """Masks of real tokens alone: the values at padding are not used."""
    tokens = batch.tokens
    reached = tokens.mask if batch.states is None else batch.states.mask
    named = {
        "advantages": (batch.advantage, tokens.mask),
        "returns": (batch.returns, reached),
        "log-probabilities as sampled": (tokens.log_prob, tokens.mask),
        "values": (tokens.value, tokens.mask),
    }
    return {name: _nonfinite(values) & mask for name, (values, mask) in named.items()}


def _outputs(outputs: object) -> Masks:
    masks: Masks = {}
    match outputs:
        case Outputs(step=step, log_ratio=ratio):
            if step is not None and step.log_prob is not None:
                masks["log-probabilities"] = _nonfinite(step.log_prob)
            if ratio is not None:
                masks["log-ratios"] = _nonfinite(ratio)
        case TokenOutputs(log_prob=log_prob, value=value):
            masks["log-probabilities"] = _nonfinite(log_prob)
            masks["the critic's values"] = _nonfinite(value)
    return masks


def _per_item(mask: Tensor, batch: Batch | TokenBatch) -> Tensor:
    """A mask `[tokens]` of the real tokens of all responses as one `[B, G]`; others unchanged."""
    if isinstance(batch, TokenBatch) and mask.shape == (int(batch.tokens.mask.sum()),):
        full = torch.zeros_like(batch.tokens.mask)
        full[batch.tokens.mask] = mask.to(full.device)
        return full
    return mask


def _nonfinite(values: Tensor) -> Tensor:
    return ~torch.isfinite(values.detach())
