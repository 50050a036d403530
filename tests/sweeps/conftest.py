"""What plans of sweeps need."""

from importlib.util import find_spec

import pytest

from rlfactory.model.pipelines.shipped import PACKAGED


@pytest.fixture
def its_model(name: str) -> None:
    """Skips the sweep `name` of a model that another package ships, where that is missing."""
    model = PACKAGED.get(name.partition("_")[0])
    if model and find_spec(model.package) is None:
        pytest.skip(model.install)
