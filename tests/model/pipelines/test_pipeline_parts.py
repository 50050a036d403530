"""The parts of a pipeline's folder; strangers' folders are in tests/strangers."""

import json
from pathlib import Path

import pytest

from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.model.pipelines.pipeline_parts import (
    left_out,
    part_variant,
    pipeline_fault,
    variant_of,
)


@pytest.mark.parametrize("name", ["tiny_sd", "tiny_sd3", "tiny_flux"])
def test_what_ships_is_whole(name: str) -> None:
    folder = zoo_path(name)
    assert pipeline_fault(folder) is variant_of(folder) is None
    assert left_out(folder) == []


def test_a_variant_is_taken_where_there_is_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(json.dumps({"unet": ["a", "b"], "vae": ["a", "b"]}))
    for name in ("unet/m.safetensors", "vae/model.bf16.safetensors", "vae/model.fp16.safetensors"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "unet/model.safetensors").touch()
    (tmp_path / "unet/model.fp16.safetensors").touch()
    assert part_variant(tmp_path / "unet") is None
    assert variant_of(tmp_path) == "fp16"
    (tmp_path / "vae/model.fp16.safetensors").unlink()
    assert variant_of(tmp_path) == "bf16"
