"""What the adapters of Stable Diffusion, Stable Diffusion 3 and FLUX share."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rlfactory.model.evaluations import Evaluations
from rlfactory.model.flux import Flux
from rlfactory.model.pipeline_model import PipelineModel
from rlfactory.model.sd import SD
from rlfactory.model.sd3 import SD3

PROMPTS = ["a red circle", "two blue stars", "a red circle"]
Make = Callable[..., PipelineModel]


@pytest.fixture(params=["sd", "sd3", "flux"])
def make(
    request: pytest.FixtureRequest, sd_folder: Path, sd3_folder: Path, flux_folders: dict[str, Path]
) -> Make:
    """Each adapter on its random pipeline."""
    cpu = torch.device("cpu")

    def adapter(**options: object) -> PipelineModel:
        if request.param == "sd":
            return SD(cpu, path=str(sd_folder), size=64, **({"guidance": 1.0} | options))
        known = {"guidance": 1.0, "size": 64, "text_tokens": 16} | options
        if request.param == "sd3":
            return SD3(cpu, path=str(sd3_folder), **known)
        return Flux(cpu, path=str(flux_folders["dev"]), **known)

    return adapter


@torch.no_grad()
def predict(model: PipelineModel) -> Tensor:
    x = torch.randn(3, *model.resolution.shape, generator=torch.Generator().manual_seed(0))
    return model.predict(x, torch.linspace(0.2, 1.0, 3), model.encode(PROMPTS))


def rows_seen(model: PipelineModel) -> list[int]:
    """The batch sizes that the network gives back from now on."""
    seen: list[int] = []
    model.network.register_forward_hook(lambda _module, _args, found: seen.append(len(found[0])))
    return seen


def test_a_prediction_counts_as_one_evaluation_a_sample(make: Make) -> None:
    model = make()
    seen = rows_seen(model)
    assert predict(model).dtype == torch.float32
    assert seen == [3]
    assert model.evaluations.taken() == Evaluations(forward=3)


def test_guidance_makes_it_two_in_one_pass(make: Make) -> None:
    model = make(guidance=3.0)
    seen = rows_seen(model)
    predict(model)
    assert seen == [6]
    assert model.evaluations.taken() == Evaluations(forward=6)


@pytest.mark.parametrize(("guidance", "encoded"), [(1.0, []), (3.0, ["stars"])])
def test_the_negative_prompt_is_encoded_with_guidance_alone(
    make: Make, monkeypatch: pytest.MonkeyPatch, guidance: float, encoded: list[str]
) -> None:
    seen: list[str] = []
    encode = PipelineModel.encode

    def listen(model: PipelineModel, prompts: list[str]) -> object:
        seen.extend(prompts)
        return encode(model, prompts)

    monkeypatch.setattr(PipelineModel, "encode", listen)
    make(guidance=guidance, negative_prompt="stars")
    assert seen == encoded


def test_the_pipeline_itself_is_asked_for_the_same_guidance(make: Make) -> None:
    arguments = make(guidance=3.0, negative_prompt="stars").pipeline_arguments()
    assert arguments["negative_prompt"] == "stars"
    assert 3.0 in arguments.values()


def test_a_network_leaves_in_a_folder_named_after_its_part(make: Make, tmp_path: Path) -> None:
    model = make(finetune="full")
    model.export(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [model.part]
    assert (tmp_path / model.part / "config.json").is_file()
    assert model.network is getattr(model.pipe, model.part)


def test_adapters_leave_in_the_folder_itself(make: Make, tmp_path: Path) -> None:
    make(finetune="lora").export(tmp_path)
    assert (tmp_path / "adapter_config.json").is_file()
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_a_whole_pipeline_holds_the_part_without_adapters(make: Make, tmp_path: Path) -> None:
    model = make(finetune="lora")
    model.export_whole(tmp_path)
    assert (tmp_path / "model_index.json").is_file()
    again = type(model.network).from_pretrained(tmp_path / model.part)
    assert not any("lora" in name for name, _ in again.named_parameters())
