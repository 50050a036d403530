"""A network as its library saves it, with other values than it has: it may be trained meanwhile."""

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor


def with_values(network: Any, values: Mapping[str, Tensor] | None) -> Any:
    """A network to call `save_pretrained` of, which then writes `values`; `network` is not changed.

    Args:
        network: of diffusers or transformers.
        values: full tensors by the parameters' names; None: those that it has.
    """
    if values is None:
        return network
    names = {id(p): name for name, p in network.named_parameters()}
    # by identity: tied parameters have several keys and one name, and share a tensor when saved
    state = {
        key: values.get(names.get(id(tensor), key), tensor.detach())
        for key, tensor in network.state_dict(keep_vars=True).items()
    }
    shown = copy.copy(network)  # shares all modules and parameters; only this attribute is its own
    shown.state_dict = lambda *_, **__: dict(state)
    return shown


def with_prefix(values: Mapping[str, Tensor] | None, prefix: str) -> dict[str, Tensor] | None:
    """The values whose names begin with `prefix`, without it."""
    if values is None:
        return None
    return {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}
