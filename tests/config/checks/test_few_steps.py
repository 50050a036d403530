"""Models that were distilled to few steps: how they are told, what is refused, and notes."""

import json
from pathlib import Path

import pytest

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.model.pipelines.scheduler_config import STEPS, distilled_steps
from rlfactory.model.pipelines.shipped import zoo_path

KLEIN = ("model=flux2_klein", "model.path=black-forest-labs/FLUX.2-klein-4B", "model.guidance=1")
ON_STEPS = ("grpo", "grpo_guard", "flow_dppo", "branch_grpo", "ddpo", "ddpo_sf")


def notes(*words: str) -> list[str]:
    shown = plan_from_words(*words, "hardware.memory_gb=80").derived
    return [text for key, text in shown.items() if key.startswith("note")]


@pytest.mark.parametrize("algo", ["nft", "awm", "vgrpo"])
@pytest.mark.parametrize("model", [("model=flux_schnell",), ("model=z_image_turbo",), KLEIN])
def test_the_flow_matching_loss_is_refused(model: tuple[str, ...], algo: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan_from_words(*model, f"algo={algo}", "hardware.memory_gb=80")
    (problem,) = [p for p in caught.value.problems if p.key == "algo"]
    assert problem.instead is not None
    assert {"algo=grpo", "dynamics=cps"} <= {*problem.instead}
    plan_from_words(*model, *problem.instead, "hardware.memory_gb=80")
    made = plan_from_words(
        *model, f"algo={algo}", "distilled_to=null", "times.count=2", "hardware.memory_gb=80"
    )
    assert not any("distilled to" in text for text in made.derived.values())


@pytest.mark.parametrize("algo", ON_STEPS)
def test_learning_from_its_own_steps_is_sound_and_said(algo: str) -> None:
    found = notes("model=flux_schnell", f"algo={algo}")
    (said,) = [text for text in found if "distilled to 4 steps" in text]
    assert "as this one" in said
    assert any("dynamics=cps" in text for text in found) is (algo != "grpo")


@pytest.mark.slow
def test_notes_name_what_departs_from_the_model() -> None:
    own = notes("model=z_image_turbo", "algo=grpo")
    assert not [text for text in own if "schedule.steps" in text or "guidance" in text]
    found = notes(
        *("model=z_image_turbo", "algo=grpo", "schedule.steps=10", "evaluation.steps=20"),
        "model.guidance=4",
    )
    for said in ("schedule.steps=10 is", "evaluation.steps=20 is", "model.guidance=1"):
        assert any(said in text for text in found), said


@pytest.mark.parametrize("model", ["flux2_klein", "z_image", "flux", "sana", "tiny_flux"])
def test_models_that_were_not_distilled_have_no_such_notes(model: str) -> None:
    assert not [text for text in notes(f"model={model}", "algo=nft") if "distilled to" in text]


def folder_with(folder: Path, index: object, network: object, scheduler: object) -> Path:
    for name, content in (
        ("model_index", index),
        ("transformer/config", network),
        ("scheduler/scheduler_config", scheduler),
    ):
        path = folder / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("index", "network", "scheduler", "steps"),
    [
        ({"_class_name": "Flux2KleinPipeline", "is_distilled": True}, {}, {}, 4),
        ({"_class_name": "Flux2KleinPipeline", "is_distilled": False}, {}, {}, None),
        ({"_class_name": "FluxPipeline"}, {"guidance_embeds": False}, {"shift": 1.0}, 4),
        ({"_class_name": "FluxPipeline"}, {"guidance_embeds": True}, {"shift": 1.0}, None),
        ({"_class_name": "FluxPipeline"}, {"guidance_embeds": False}, {"shift": 3.0}, None),
        (
            {"_class_name": "FluxPipeline"},
            {"guidance_embeds": False},
            {"shift": 1.0, "use_dynamic_shifting": True},
            None,
        ),
        ({"_class_name": "ZImagePipeline"}, {"dim": 8}, {"shift": 1.0}, None),
    ],
)
def test_files_say_so(
    index: object, network: object, scheduler: object, steps: int | None, tmp_path: Path
) -> None:
    assert distilled_steps(str(folder_with(tmp_path, index, network, scheduler))) == steps


def test_hub_ids_say_so() -> None:
    assert distilled_steps("black-forest-labs/FLUX.1-dev") is None
    assert {path: distilled_steps(path) for path in STEPS} == STEPS
    assert distilled_steps(str(zoo_path("tiny_flux"))) is None


def test_sana_sprint_is_refused_with_its_reason(tmp_path: Path) -> None:
    index = {"_class_name": "SanaSprintPipeline"}
    folder = folder_with(tmp_path, index, {}, {"_class_name": "SCMScheduler"})
    with pytest.raises(PlanError) as caught:
        plan_from_words("model=sana", f"model.path={folder}", "hardware.memory_gb=80")
    (problem,) = caught.value.problems
    assert problem.key == "model.path"
    assert "consistency model in TrigFlow's time (SCMScheduler)" in problem.message


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["grpo", "ddpo"])
def test_flow_sde_takes_no_step_from_just_below_one(algo: str) -> None:
    words = ("model=sana", f"algo={algo}", "dynamics=flow_sde", "hardware.memory_gb=80")
    with pytest.raises(PlanError) as caught:
        plan_from_words(*words, "schedule=dpm")
    (problem,) = caught.value.problems
    assert (problem.key, problem.fix) == ("schedule.kind", "schedule=uniform")
    plan_from_words(*words, problem.fix)
    plan_from_words(*words, "schedule=dpm", "window=fixed", "window.steps=[1,3]")
