"""An export of given values equals that of a network which holds them, and leaves it alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rlfactory.config.overrides import plan_from_words
from rlfactory.model.weight_sets import EMA
from rlfactory.run.checkpoint.save import values_of
from rlfactory.train.build import instantiate_group

CPU = torch.device("cpu")
MODELS = {
    "sd3": ["model.finetune=full"],
    "sd3_lora": ["model.finetune=lora"],
    "flux_lora": ["model=tiny_flux", "model.finetune=lora"],
    "sd": ["model=tiny_sd", "model.finetune=full"],
    "gpt2": ["model=tiny_gpt2"],  # its input and output embeddings are one tensor
    "gpt2_lora": ["model=tiny_gpt2", "model.finetune=lora"],
}


def content(folder: Path) -> dict[str, Any]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    read = {f: load_file(f) if f.suffix == ".safetensors" else f.read_bytes() for f in files}
    return {file.relative_to(folder).as_posix(): found for file, found in read.items()}


@pytest.mark.parametrize("name", MODELS)
def test_given_values_are_exported_and_the_network_is_left_alone(name: str, tmp_path: Path) -> None:
    config = plan_from_words(*MODELS[name]).config
    model: Any = instantiate_group(config, "model", device=CPU, seed=0)
    weights = model.weights
    weights.add(EMA)
    with torch.no_grad():
        for number, parameter in enumerate(weights.parameters.values()):
            parameter.add_(0.01 * (number + 1))
    values = values_of(EMA, weights.full_state_dict())
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    with weights.swapped(EMA):
        model.export(tmp_path / "one")
    before = weights.full_state_dict()
    with torch.no_grad():  # training goes on
        for parameter in weights._policy.values():
            parameter.zero_()
    model.export(tmp_path / "two", values)
    assert all(not bool(p.any()) for p in weights._policy.values())
    assert "state_dict" not in vars(model.network)
    one, two = content(tmp_path / "one"), content(tmp_path / "two")
    assert one.keys() == two.keys()
    for file, expected in one.items():
        if isinstance(expected, bytes):
            assert two[file] == expected, file
        else:
            torch.testing.assert_close(two[file], expected, rtol=0, atol=0)
    policy = {key: value for key, value in before.items() if key.startswith("policy/")}
    saved = [t for found in two.values() if isinstance(found, dict) for t in found.values()]
    assert len(saved) >= len(policy) // 2
