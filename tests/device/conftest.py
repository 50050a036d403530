"""The pretended device, for tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_pipelines import *  # noqa: F403  (its fixtures)

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.append(str(HERE))

from pretended.client import NoDeviceError, Pretended  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    """`pytest tests/device` runs its slow tests too, unless -m says which."""
    asked = [Path(config.invocation_params.dir, word.split("::")[0]) for word in config.args]
    is_default = config.option.markexpr in config.getini("addopts")
    if is_default and all(path.is_relative_to(HERE) for path in asked):
        config.option.markexpr = ""


@pytest.fixture(scope="session")
def pretended() -> Iterator[Pretended]:
    """The pretended device; skips where it can't be built."""
    try:
        device = Pretended()
    except NoDeviceError as error:
        pytest.skip(f"no pretended device: {error}")
    yield device
    device.close()
