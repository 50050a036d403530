"""Our own loop as an option: the sampler calls the model."""

from typing import Any

import pytest

from rlfactory.engine.base import SamplingSettings
from rlfactory.engine.own import Own


def test_the_model_draws() -> None:
    engine, model = Own(), Any
    engine.open(model)
    engine.load(model)
    engine.close()
    assert engine.draws_by == "model"
    with pytest.raises(NotImplementedError):
        engine.generate([], [], SamplingSettings(1, 1.0, ()))
