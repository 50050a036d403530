"""Where the networks of rewards are: on their device, or out of the way on the CPU."""

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import nn

from rlfactory.reward.base import Reward


class Placement:
    """Moves the networks that some rewards hold to `device` when they are used, and away after."""

    def __init__(self, rewards: Iterable[Reward], device: torch.device) -> None:
        self.modules = networks_of(rewards)
        self.device = device
        self._is_here = True

    def here(self) -> None:
        """To the device that they compute on."""
        self._move(True, self.device)

    def away(self) -> None:
        """To the CPU, so that their memory is free."""
        self._move(False, torch.device("cpu"))

    def _move(self, here: bool, device: torch.device) -> None:
        if self._is_here != here:
            for module in self.modules:
                module.to(device)
        self._is_here = here


def networks_of(rewards: Iterable[Reward]) -> list[nn.Module]:
    """Every network in an attribute of a reward, or of one of our objects in it, each once."""
    seen: set[int] = set()
    return [module for reward in rewards for module in _networks(reward, seen)]


def _networks(thing: object, seen: set[int]) -> Iterator[nn.Module]:
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, nn.Module):
        yield thing
        return
    inside: Iterable[object] = ()
    if isinstance(thing, Mapping):
        inside = thing.values()
    elif isinstance(thing, list | tuple):
        inside = thing
    elif isinstance(thing, Reward) or type(thing).__module__.startswith("rlfactory."):
        inside = getattr(thing, "__dict__", {}).values()
    for item in inside:
        yield from _networks(item, seen)
