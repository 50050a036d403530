import math

import pytest

from rlfactory.run.format import clock, number, size


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.000"),
        (0.5, "0.500"),
        (-1.2345, "-1.234"),
        (12.345, "12.35"),
        (123.45, "123.5"),
        (12345.0, "12345"),
        (4.1e-5, "4.1e-05"),
        (2.5e6, "2.5e+06"),
        (math.nan, "–"),
        (math.inf, "inf"),
    ],
)
def test_number(value: float, shown: str) -> None:
    assert number(value) == shown


def test_signs_are_shown_on_request() -> None:
    assert number(0.1, sign=True) == "+0.100"
    assert number(-0.1, sign=True) == "-0.100"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0:00"),
        (59.6, "1:00"),
        (61, "1:01"),
        (3600, "1:00:00"),
        (-3, "0:00"),
        (math.nan, "-:--"),
    ],
)
def test_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**30, "1.0 GiB"), (2**41, "2.0 TiB")],
)
def test_size(count: float, shown: str) -> None:
    assert size(count) == shown
