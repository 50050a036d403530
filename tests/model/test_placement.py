"""Where the network that is trained is made: inside the `with`, and as before after it."""

import pytest
import torch

from rlfactory.model.precision import network_device, network_on

CPU, META = torch.device("cpu"), torch.device("meta")


def test_it_counts_inside_alone_and_the_innermost_first() -> None:
    assert network_device(CPU) == CPU
    with network_on(META):
        assert network_device(CPU) == META
        with network_on(CPU):
            assert network_device(META) == CPU
        assert network_device(CPU) == META
    assert network_device(CPU) == CPU


def test_an_error_ends_it_too() -> None:
    with pytest.raises(RuntimeError), network_on(META):
        raise RuntimeError
    assert network_device(CPU) == CPU
