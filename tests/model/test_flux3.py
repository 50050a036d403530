"""FLUX.3 klein: windows of text, and the time that a flow map's step goes to; its folders and those
of others; tests/model/test_families.py has the rest."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.dynamics.schedule import Schedule
from rlfactory.model.flux import Flux
from rlfactory.model.flux3 import Flux3Klein, Flux3KleinDistilled
from rlfactory.model.pipelines.noise_levels import noise_levels
from rlfactory.model.pipelines.scheduler_config import distilled_steps
from rlfactory.model.precision import Precision
from rlfactory.tools.export.snippet import set_scheduler
from rlfactory.utils.errors import ModelError

CPU = torch.device("cpu")
SHORT, LONG = (
    "a red circle",
    "a red circle beside a blue star, and over both of them a green square",
)


@pytest.fixture
def model(flux3_folder: Path) -> Flux3Klein:
    return Flux3Klein(CPU, path=str(flux3_folder), size=64, guidance=3.0)


def heard(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """What the network is called with from now on."""
    seen: list[Mapping[str, Any]] = []
    forward = model.network.forward

    def listened(**inputs: Any) -> Any:
        seen.append(inputs)
        return forward(**inputs)

    monkeypatch.setattr(model.network, "forward", listened)
    return seen


def starts(model: Any, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, *model.resolution.shape, generator=generator), torch.full(
        (count,), 0.6
    )


def test_prompts_of_one_window_go_through_the_network_together(
    model: Flux3Klein, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, t = starts(model, 3)
    condition = model.encode([SHORT, LONG, "a star"])
    assert condition.tensors["lengths"].tolist() == [80, 160, 80]
    assert condition.tensors["sequence"].shape[1] == 160
    each = [model.predict(x[[i]], t[[i]], model.encode([p])) for i, p in enumerate([SHORT, LONG])]
    seen = heard(model, monkeypatch)
    found = model.predict(x, t, condition)
    shapes = [tuple(inputs["encoder_hidden_states"].shape[:2]) for inputs in seen]
    assert shapes == [(5, 80), (1, 160)]  # three negative prompts and two prompts; one prompt
    torch.testing.assert_close(found[:2], torch.cat(each))


def test_processes_with_shards_make_equal_passes(
    model: Flux3Klein, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, t = starts(model, 2)
    condition = model.encode([SHORT, "a star"])
    expected = model.predict(x, t, condition)
    monkeypatch.setattr(model.weights, "sharding", SimpleNamespace())
    seen = heard(model, monkeypatch)
    found = model.predict(x, t, condition)
    assert [inputs["encoder_hidden_states"].shape[1] for inputs in seen] == [80, 160]
    assert torch.equal(found, expected)
    assert found.requires_grad


def test_a_longer_prompt_is_cut(flux3_folder: Path) -> None:
    model = Flux3Klein(CPU, path=str(flux3_folder), size=64, text_tokens=100, guidance=1.0)
    assert model.encode([LONG]).tensors["lengths"].tolist() == [100]


@pytest.fixture
def distilled(flux3_distilled_folder: Path) -> Flux3KleinDistilled:
    return Flux3KleinDistilled(CPU, path=str(flux3_distilled_folder), size=64)


def test_a_step_is_told_where_it_goes(
    distilled: Flux3KleinDistilled, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = noise_levels(Schedule(steps=16), distilled.resolution)
    assert distilled.resolution.shift == 6.93
    seen = heard(distilled, monkeypatch)
    x, _ = starts(distilled, 16)
    distilled.predict(x, levels[:-1], distilled.encode(["a star"] * 16))
    torch.testing.assert_close(seen[0]["timestep"], levels[:-1])
    torch.testing.assert_close(seen[0]["target_timestep"], levels[1:], rtol=0, atol=3e-7)


def test_a_time_between_two_levels_goes_as_far(distilled: Flux3KleinDistilled) -> None:
    levels = noise_levels(Schedule(steps=32), distilled.resolution)[1::2]
    times = distilled._network_times(levels[:-1])
    torch.testing.assert_close(times["target_timestep"], levels[1:], rtol=0, atol=3e-7)
    last = distilled._network_times(torch.tensor([0.01, 0.0]))
    assert last["target_timestep"].tolist() == [0.0, 0.0]


def test_times_are_exact_where_the_network_computes_in_half_precision(
    flux3_distilled_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = Precision(weights="bfloat16", rollout="bfloat16", learning="bfloat16")
    options = {"path": str(flux3_distilled_folder), "size": 64, "precision": half}
    model = Flux3KleinDistilled(CPU, **options)
    seen: list[Tensor] = []
    project = model.network.time_proj.forward
    monkeypatch.setattr(
        model.network.time_proj, "forward", lambda times: (seen.append(times), project(times))[1]
    )
    x, _ = starts(model, 1)
    model.predict(x, torch.tensor([0.7531]), model.encode(["a star"]))
    assert seen[0].item() == pytest.approx(753.1, abs=1e-3)


@pytest.mark.parametrize(
    ("words", "said", "fix"),
    [
        (["schedule.steps=8"], "schedule.steps: is 8", "schedule.steps=16"),
        (["evaluation.steps=20"], "evaluation.steps: is 20", "evaluation.steps=16"),
        (["schedule.shift=3"], "schedule.shift: is 3", "schedule.shift=null"),
        (["schedule.kind=diffusers"], "schedule.kind: is diffusers", "schedule.kind=uniform"),
        (["model.guidance=3"], "distilled to sample without guidance", "model.guidance=1"),
    ],
)
def test_samples_take_the_steps_that_the_network_is_told(
    words: list[str], said: str, fix: str
) -> None:
    with pytest.raises(PlanError) as error:
        plan_from_words("model=flux3_klein_distilled", *words)
    (problem,) = error.value.problems
    assert said in f"{problem.key}: {problem.message}"
    assert problem.fix == fix
    plan_from_words("model=flux3_klein_distilled", "model.map_steps=8", "schedule.steps=8")


def folder_of_index(folder: Path, name: str, index: Mapping[str, object]) -> Path:
    folder.mkdir()
    (folder / name).write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize(
    ("option", "index", "kind", "fix"),
    [
        # an ordinary pipeline, and a modular one of another family, in place of FLUX.3
        ("flux3_klein", "model_index.json", "FluxPipeline", "flux"),
        ("flux3_klein", "modular_model_index.json", "Flux2KleinModularPipeline", None),
        (
            "flux3_klein",
            "modular_model_index.json",
            "Flux3DistilledModularPipeline",
            "flux3_klein_distilled",
        ),
        # FLUX.3 in place of an ordinary pipeline
        ("flux", "modular_model_index.json", "Flux3ModularPipeline", "flux3_klein"),
    ],
)
def test_a_pipeline_of_another_kind_is_refused_before_torch_is_asked(
    option: str, index: str, kind: str, fix: str | None, tmp_path: Path
) -> None:
    folder = folder_of_index(tmp_path / "other", index, {"_class_name": kind})
    with pytest.raises(PlanError) as error:
        plan_from_words(f"model={option}", f"model.path={folder}")
    (problem,) = [p for p in error.value.problems if p.key == "model.path"]
    assert f"is a {kind}, not a " in problem.message
    assert (problem.fix or None) == (f"rlfactory model={fix} model.path={folder}" if fix else None)


@pytest.mark.parametrize("other", ["flux_folders", "flux3_distilled_folder"])
def test_the_adapter_itself_refuses_another_pipeline(
    other: str, request: pytest.FixtureRequest
) -> None:
    found = request.getfixturevalue(other)
    folder = found["dev"] if isinstance(found, Mapping) else found
    with pytest.raises(ModelError, match="not a Flux3ModularPipeline; type model="):
        Flux3Klein(CPU, path=str(folder), size=64)


def test_an_adapter_of_ordinary_pipelines_refuses_a_modular_one(flux3_folder: Path) -> None:
    with pytest.raises(ModelError, match="is a Flux3ModularPipeline, not a FluxPipeline; type"):
        Flux(CPU, path=str(flux3_folder), size=64)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            "text_encoder",
            "lacks the files of text_encoder, which its modular_model_index.json names",
        ),
        ("transformer", "lacks the files of transformer"),
    ],
)
def test_a_part_that_lies_elsewhere_is_named(
    part: str, said: str, flux3_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(flux3_folder, tmp_path / "copy")
    shutil.rmtree(folder / part)
    with pytest.raises(PlanError, match=said):
        plan_from_words("model=flux3_klein", f"model.path={folder}", "model.size=64")


def test_files_say_that_a_model_was_distilled(
    flux3_folder: Path, flux3_distilled_folder: Path
) -> None:
    assert distilled_steps(str(flux3_folder)) is None
    assert distilled_steps(str(flux3_distilled_folder)) == 16


@pytest.mark.slow
def test_a_merged_pipeline_is_one_of_its_own(
    model: Flux3Klein, train: Callable[[Flux3Klein], None], tmp_path: Path
) -> None:
    train(model)
    x, t = starts(model, 1)
    condition = model.encode([SHORT])
    with torch.no_grad():
        expected = model.predict(x, t, condition)
        # another shift is not saved with it: the printed code gives the noise levels
        set_scheduler(model.pipe, {"schedule": {"shift": 3.0}})
        model.export_merged(tmp_path / "merged")
        again = Flux3Klein(
            CPU, path=str(tmp_path / "merged"), size=64, guidance=3.0, finetune="full"
        )
        found = again.predict(x, t, again.encode([SHORT]))
    assert again.resolution.shift == model.pipe.scheduler.config.shift == 6.93
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
