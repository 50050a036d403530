"""Where the network that is trained is made."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_NETWORK_DEVICE = ContextVar[torch.device | None]("network_device", default=None)


@contextmanager
def network_on(device: torch.device) -> Iterator[None]:
    """Models made inside the `with` have the network that is trained on this device.

    On `meta` it is built from its configuration and nothing is read: the hardware gives it values.
    """
    token = _NETWORK_DEVICE.set(device)
    try:
        yield
    finally:
        _NETWORK_DEVICE.reset(token)


def network_device(default: torch.device) -> torch.device:
    """That of `network_on`; without it the default."""
    return _NETWORK_DEVICE.get() or default
