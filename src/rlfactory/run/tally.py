"""Averages over an iteration's training items, without waiting for the device at each of them."""

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor


class Tally:
    """Values by name; a tensor counts once for each of its elements."""

    def __init__(self) -> None:
        self._values: dict[str, list[Tensor]] = defaultdict(list)

    def add(self, name: str, value: float) -> None:
        """One more value."""
        self._values[name].append(torch.tensor([value]))

    def extend(self, values: Mapping[str, Tensor]) -> None:
        """One more tensor of values under each name."""
        for name, tensor in values.items():
            self._values[name].append(tensor.reshape(-1))

    def __len__(self) -> int:
        """How many names there are."""
        return len(self._values)

    def latest(self, name: str) -> float | None:
        """The mean of what came last under a name, None before that."""
        values = self._values.get(name)
        return float(values[-1].float().mean()) if values else None

    def latest_of(self, prefix: str) -> dict[str, float]:
        """The same of all names that begin so."""
        found = (name for name in self._values if name.startswith(prefix))
        return {name: value for name in found if (value := self.latest(name)) is not None}

    def largest(self, name: str) -> float:
        """The largest value so far."""
        return float(torch.cat(self._values[name]).max())

    def means(self) -> dict[str, float]:
        """The mean of each name; of a `max_...` name the maximum."""
        return {
            name: self.largest(name) if "max_" in name else float(torch.cat(values).float().mean())
            for name, values in self._values.items()
        }
