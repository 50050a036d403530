"""Whether an architecture computes in a run's passes what its own forward pass does."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from rlfactory.model.lm.attention import (
    attention_mask,
    hidden_states,
    masks_by_layers,
    preallocated_cache,
)
from rlfactory.model.lm.generate import positions_of
from rlfactory.model.lm.logits import finished
from rlfactory.utils.errors import ModelError

TOLERANCE, ROUNDED = 0.02, 0.1
"""Shares of the largest logit by which two computations may differ in float32 and in half
precision: of tiny models of 126 architectures they do by 2e-4 and by 0.06 at most, of those that
compute otherwise and draw on a cache by 0.19 at least (DeepSeek-V4 after padding).
"""


@torch.no_grad()
def require_known_passes(network: Any, path: str) -> None:
    """Check once that the passes of a run give the logits of the network's own over each text
    alone: so no architecture, of whatever code, is drawn from or learned from wrongly. ModelError
    where they are computed in a way that is not known here.
    """
    if network.get_output_embeddings() is None or network.device.type == "meta":
        return
    tolerance = TOLERANCE if network.dtype == torch.float32 else ROUNDED
    try:
        passes = [*_passes(network)]
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(_unknown(network, path, f"fails on a cache ({error!s:.200})")) from error
    for wrong, found, own in passes:
        if not (found - own).abs().max() <= tolerance * own.abs().max().clamp(min=1e-6):
            raise ModelError(_unknown(network, path, wrong))


def _unknown(network: Any, path: str, wrong: str) -> str:
    return (
        f"model.path={path}: {type(network).__name__} {wrong}, and is not supported; allowed are"
        " models as Llama, Qwen, Gemma, Jamba"
    )


def _passes(network: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The fault where they differ, the logits of a run's passes, and the network's own.

    A text and a shorter one, which stands after padding, are read whole, as learning does; then
    their beginnings are read into a cache, the longer text is continued in two rows, and one of
    these leaves.
    """
    config, project = network.config, network.get_output_embeddings()
    ids = torch.tensor([[1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 8, 9, 5, 4]], device=network.device)
    ids %= config.get_text_config().vocab_size
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, :3] = False
    places, by_layers, length = positions_of(mask), masks_by_layers(config), ids.shape[1]

    def read(rows: list[int], begin: int, end: int, cache: DynamicCache | None = None) -> Tensor:
        masks = attention_mask(mask[rows, :end], end - begin, by_layers=by_layers)
        given = ids[rows, begin:end], masks, places[rows, begin:end], cache
        hidden = hidden_states(network, *given).to(project.weight.dtype)
        return finished(config.get_text_config(), project(hidden)).float()

    alone = [
        network(input_ids=row[real][None]).logits[0].float()
        for row, real in zip(ids, mask, strict=True)
    ]
    whole = read([0, 1], 0, length)
    yield (
        "computes its logits otherwise than by an output projection of its last hidden states, a"
        " scale and a cap",
        whole[0],
        alone[0],
    )
    yield "computes other logits after padding", whole[1, 3:], alone[1]
    cache = preallocated_cache(config, length)
    read([1, 0], 0, length - 2, cache)
    cache.reorder_cache(torch.tensor([1, 1, 0], device=network.device))
    ends = [torch.stack([alone[row][at] for row in (0, 0, 1)]) for at in (-2, -1)]
    wrong = "computes other logits on a cache"
    yield wrong, read([0, 0, 1], length - 2, length - 1, cache)[:, -1], ends[0]
    cache.reorder_cache(torch.tensor([1, 2], device=network.device))
    yield wrong, read([0, 1], length - 1, length, cache)[:, -1], ends[1][1:]
