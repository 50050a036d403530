"""FLUX.2 dev: what differs from klein; tests/model/test_families.py has the rest."""

from pathlib import Path

import pytest
import torch

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.model.flux2_dev import Flux2Dev


@pytest.fixture
def model(flux2_dev_folder: Path) -> Flux2Dev:
    options = {"size": 64, "text_tokens": 1024, "embedded_guidance": 2.5}
    return Flux2Dev(torch.device("cpu"), path=str(flux2_dev_folder), **options)


def test_guidance_is_an_input_of_one_forward_pass(
    model: Flux2Dev, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []
    forward = model.network.forward

    def heard(*args: object, **inputs: torch.Tensor) -> object:
        seen.append(inputs["guidance"])
        return forward(*args, **inputs)

    monkeypatch.setattr(model.network, "forward", heard)
    x = torch.zeros(2, *model.resolution.shape)
    model.predict(x, torch.tensor([0.2, 0.7]), model.encode(["a red circle", "a star"]))
    assert [guidance.tolist() for guidance in seen] == [[2.5, 2.5]]


def test_the_pipeline_is_called_with_that_guidance_alone(model: Flux2Dev) -> None:
    assert model.pipeline_arguments() == {"guidance_scale": 2.5, "max_sequence_length": 1024}


@pytest.mark.parametrize("word", ["model.guidance=2", "model.negative_prompt=stars"])
def test_there_is_no_classifier_free_guidance(word: str) -> None:
    with pytest.raises(PlanError, match="there is no such key"):
        plan_from_words("model=flux2_dev", word)
