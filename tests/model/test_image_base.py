"""The common part of the adapters of Stable Diffusion, Stable Diffusion 3 and FLUX."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from diffusers import StableDiffusionPipeline
from torch import Tensor

from rlfactory.model.base import NFECounter
from rlfactory.model.flux import Flux
from rlfactory.model.image_base import PipelineModel
from rlfactory.model.memory import Memory
from rlfactory.model.pipelines.embedding_cache import PromptCache, TextEmbeddings
from rlfactory.model.pipelines.text_encoders import open_pipeline
from rlfactory.model.precision import Precision
from rlfactory.model.sd import SD
from rlfactory.model.sd3 import SD3
from rlfactory.rollout import Condition


def network(x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
    return x * t.view(-1, 1) + text["a"] * text["b"]


CPU = torch.device("cpu")
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
    assert model.evaluations.read_and_reset() == NFECounter(forward=3)


def test_guidance_makes_it_two_in_one_pass(make: Make) -> None:
    model = make(guidance=3.0)
    seen = rows_seen(model)
    predict(model)
    assert seen == [6]
    assert model.evaluations.read_and_reset() == NFECounter(forward=6)


class Guided:
    """The prediction `x t + a b` of embeddings `a` and `b`, with guidance."""

    _combine, predict = PipelineModel._combine, PipelineModel.predict

    def __init__(self, guidance: float, negative: TextEmbeddings) -> None:
        self.guidance, self._negative = guidance, negative

    def _evaluate(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        return x * t.view(-1, 1) + text["a"] * text["b"]


def test_guidance_starts_at_the_negative_and_goes_through_the_positive() -> None:
    x, t = torch.tensor([[1.0], [2.0]]), torch.tensor([0.5, 0.25])
    positive = {"a": torch.tensor([[1.0], [3.0]]), "b": torch.ones(2, 1, requires_grad=True)}
    negative = {"a": torch.tensor([[2.0]]), "b": torch.ones(1, 1, requires_grad=True)}
    # at 1 it is the positive: .5 + 1 and .5 + 3; at 3 it is n + 3 (p - n) = 2.5 - 3 and 2.5 + 3
    plain, model = cast(Any, Guided(1.0, negative)), cast(Any, Guided(3.0, negative))
    assert plain.predict(x, t, Condition(positive)).tolist() == [[1.5], [3.5]]
    found = model.predict(x, t, Condition(positive))
    assert found.tolist() == [[-0.5], [5.5]]
    found.sum().backward()
    assert positive["b"].grad.tolist() == [[3.0], [9.0]]
    assert negative["b"].grad.tolist() == [[-8.0]]


@pytest.mark.parametrize(("guidance", "encoded"), [(1.0, []), (3.0, ["stars"])])
def test_the_negative_prompt_is_encoded_with_guidance_alone(
    make: Make, monkeypatch: pytest.MonkeyPatch, guidance: float, encoded: list[str]
) -> None:
    seen: list[str] = []
    encode = PipelineModel._encode_negative

    def listen(model: PipelineModel, prompt: str) -> object:
        seen.append(prompt)
        return encode(model, prompt)

    monkeypatch.setattr(PipelineModel, "_encode_negative", listen)
    make(guidance=guidance, negative_prompt="stars")
    assert seen == encoded


def test_the_pipeline_itself_is_asked_for_the_same_guidance(make: Make) -> None:
    arguments = make(guidance=3.0, negative_prompt="stars").pipeline_arguments()
    assert arguments["negative_prompt"] == "stars"
    assert 3.0 in arguments.values()


def test_lora_trains_the_adapters_alone(make: Make) -> None:
    model = make(finetune="lora", lora_targets=["to_q"])
    trained = [name for name, p in model.network.named_parameters() if p.requires_grad]
    assert model.lora is not None
    assert trained == list(model.weights.parameters)
    assert all("lora" in name and "to_q" in name for name in trained)
    assert "reference" in model.weights, "the network without adapters, at no cost"


def test_full_fine_tuning_trains_all_weights_without_adapters(make: Make) -> None:
    model = make(finetune="full")
    assert model.lora is None
    assert list(model.weights.parameters) == [n for n, _ in model.network.named_parameters()]
    assert all(p.requires_grad for p in model.network.parameters())
    assert "reference" not in model.weights


def test_full_fine_tuning_exports_a_folder_named_after_the_network(
    make: Make, tmp_path: Path
) -> None:
    model = make(finetune="full")
    model.export(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [model.part]
    assert (tmp_path / model.part / "config.json").is_file()
    assert model.network is getattr(model.pipe, model.part)
    again = type(model.network).from_pretrained(tmp_path / model.part)
    for name, parameter in again.named_parameters():
        assert torch.equal(parameter, model.weights.parameters[name])


def test_lora_exports_adapters_into_the_folder_itself(make: Make, tmp_path: Path) -> None:
    model = make(finetune="lora", lora_rank=2, lora_alpha=4.0)
    saved: dict[str, Any] = {}
    model.pipe.save_lora_weights = lambda folder, **kept: saved.update(kept)
    model.export(tmp_path)
    assert saved[f"{model.part}_lora_adapter_metadata"]["lora_alpha"] == 4.0
    assert len(saved[f"{model.part}_lora_layers"]) == len(model.weights.parameters)
    assert (tmp_path / "adapter_config.json").is_file()
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_a_merged_export_is_a_pipeline_without_adapters(make: Make, tmp_path: Path) -> None:
    model = make(finetune="lora")
    model.export_merged(tmp_path)
    assert (tmp_path / "model_index.json").is_file()
    again = type(model.network).from_pretrained(tmp_path / model.part)
    assert not any("lora" in name for name, _ in again.named_parameters())


@pytest.mark.slow
def test_encoders_come_along_where_a_prompt_is_new(sd_folder: Path, tmp_path: Path) -> None:
    def opened(*prompts: str):
        cache = PromptCache(tmp_path, prompts)
        given = (str(sd_folder), CPU, Precision(), Memory(), cache)
        return open_pipeline(
            StableDiffusionPipeline,
            *given,
            encode,
            trained_parts=(),
            always=["a"],
            safety_checker=None,
        )

    def encode(prompts: list[str]) -> dict[str, torch.Tensor]:
        return {"length": torch.tensor([float(len(prompt)) for prompt in prompts])}

    pipe, texts = opened("bb")
    assert pipe.text_encoder is not None
    assert texts(["a", "bb"]).tensors["length"].tolist() == [1.0, 2.0]
    assert opened("bb")[0].text_encoder is None
    assert opened("bb", "new")[0].text_encoder is not None
