"""A caller's settings of torch do not reach a run, and are as before afterwards."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch

from rlfactory.hardware.torch_defaults import kept_defaults, torch_defaults


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def default_device(name: str) -> Iterator[None]:
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


def state() -> tuple[Any, ...]:
    made = torch.ones(2, 2, requires_grad=True)
    product = made @ made
    return made.dtype, made.device.type, product.dtype, product.requires_grad, made.is_inference()


OWN = (torch.float32, "cpu", torch.float32, True, False)


@pytest.mark.parametrize(
    "settings",
    [
        lambda: default_dtype(torch.float64),
        lambda: default_dtype(torch.bfloat16),
        lambda: default_device("meta"),
        lambda: torch.device("meta"),
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        torch.no_grad,
        torch.inference_mode,
    ],
)
def test_a_block_computes_as_a_process_of_its_own(
    settings: Callable[[], AbstractContextManager[None]],
) -> None:
    with settings():
        before = state()
        assert before != OWN, "the test changes nothing"
        with torch_defaults():
            assert state() == OWN
        assert state() == before
    assert state() == OWN


def test_settings_come_back_after_an_error() -> None:
    with default_dtype(torch.float64):
        with pytest.raises(ValueError, match="odd"), torch_defaults():
            raise ValueError("odd")
        assert torch.get_default_dtype() == torch.float64


@pytest.mark.parametrize(
    "setting",
    [
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_device("meta"),
        lambda: torch.set_grad_enabled(False),
    ],
)
def test_what_code_in_a_block_sets_for_all_that_follows_is_undone(
    setting: Callable[[], None],
) -> None:
    with torch_defaults():
        with kept_defaults():
            setting()
            assert state() != OWN, "the test changes nothing"
        assert state() == OWN
