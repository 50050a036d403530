"""The families of image models: their rows agree with adapters, options and networks."""

import importlib

import diffusers
import pytest

from rlfactory.config.options import options
from rlfactory.config.overrides import plan_from_words
from rlfactory.model.pipelines.families import (
    BY_PIPELINE,
    BY_TARGET,
    FAMILIES,
    Family,
    family_of,
)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.option)
def test_a_row_says_what_the_adapter_says(family: Family) -> None:
    module, _, name = family.target.rpartition(".")
    adapter = getattr(importlib.import_module(module), name)
    assert adapter.pipeline == family.pipeline
    assert hasattr(diffusers, family.pipeline)
    assert adapter.part == family.network
    for option in filter(None, (family.option, family.small)):
        assert plan_from_words(f"model={option}").config["model"]["_target_"] == family.target


@pytest.mark.slow
def test_every_option_of_image_models_is_of_a_family() -> None:
    # two have no path, the third's lies in a package
    without = ("causal_lm", "qwen25_vl", "smollm2")
    named = [name for name in options("model") if name not in without]
    targets = {plan_from_words(f"model={name}").config["model"]["_target_"] for name in named}
    assert targets == {*BY_TARGET, "rlfactory.model.causal_lm.CausalLM"}
    told = [family for family in FAMILIES if family.part is not None]
    assert len(BY_PIPELINE) + len(told) == len(BY_TARGET) == len(FAMILIES)
    for family in FAMILIES:
        assert family_of(family.pipeline, [family.part or "vae"]) == family
