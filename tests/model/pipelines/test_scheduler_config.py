"""What a pipeline's scheduler has that no schedule follows is refused or noted."""

from pathlib import Path
from typing import Any

import pytest

from rlfactory.model.pipelines.scheduler_config import (
    flow_scheduler_fault,
    scheduler_of,
    solver_notes,
    timestep_notes,
)
from rlfactory.model.pipelines.shipped import zoo_path

EULER = "FlowMatchEulerDiscreteScheduler"
DPM = "DPMSolverMultistepScheduler"
UNIPC = "UniPCMultistepScheduler"
FLOW = {"use_flow_sigmas": True, "prediction_type": "flow_prediction"}
LEADING, TRAILING = (
    {"_target_": f"rlfactory.dynamics.schedule.{kind}", "steps": 50, **more}
    for kind, more in (("Leading", {"steps_offset": 1}), ("Trailing", {}))
)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("SCMScheduler", {}, "by SCMScheduler, which"),
        (DPM, {"flow_shift": 3.0}, "with use_flow_sigmas=false, prediction_type=epsilon, which"),
        (DPM, FLOW | {"algorithm_type": "sde-dpmsolver++"}, "algorithm_type=sde-dpmsolver++"),
        (DPM, FLOW | {"final_sigmas_type": "sigma_min"}, "final_sigmas_type=sigma_min"),
        (DPM, FLOW | {"num_train_timesteps": 500}, "num_train_timesteps=500"),
        (DPM, FLOW | {"use_karras_sigmas": True}, "use_karras_sigmas=true"),
        (DPM, FLOW | {"use_lu_lambdas": True}, "use_lu_lambdas=true"),
        (UNIPC, FLOW | {"use_karras_sigmas": True}, "use_karras_sigmas=true"),
        (UNIPC, FLOW | {"use_beta_sigmas": True}, "use_beta_sigmas=true"),
        (UNIPC, FLOW | {"final_sigmas_type": "sigma_min"}, "final_sigmas_type=sigma_min"),
        (UNIPC, FLOW | {"use_dynamic_shifting": True}, "use_dynamic_shifting=true"),
        (UNIPC, {"use_flow_sigmas": True}, "with prediction_type=epsilon, which"),
        (EULER, {"invert_sigmas": True}, "invert_sigmas=true"),
        (EULER, {"num_train_timesteps": 500}, "num_train_timesteps=500"),
    ],
)
def test_what_no_schedule_follows_is_a_fault(name: str, options: Any, said: str) -> None:
    fault = flow_scheduler_fault(name, options)
    assert fault is not None
    assert said in fault


@pytest.mark.parametrize(
    "options", [{}, {"use_karras_sigmas": True, "base_shift": 0.3}, {"shift_terminal": 0.1}]
)
def test_what_schedules_follow_is_none(options: dict[str, Any]) -> None:
    assert flow_scheduler_fault(EULER, options) is None


def test_a_dpm_solver_with_flow_sigmas_is_followed_and_its_order_is_noted() -> None:
    assert flow_scheduler_fault(DPM, FLOW | {"flow_shift": 3.0}) is None
    (note,) = solver_notes({"_class_name": DPM} | FLOW)
    assert "order 2" in note
    for other in ({"_class_name": DPM, "solver_order": 1}, {"_class_name": EULER}):
        assert [*solver_notes(other)] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timestep_spacing": "trailing", "steps_offset": 0}, "schedule=trailing follows it"),
        ({"timestep_spacing": "linspace"}, "no schedule here follows it"),
        ({"use_karras_sigmas": True}, "use_karras_sigmas=true"),
        ({"steps_offset": 0}, "schedule.steps_offset=0 follows it"),
    ],
)
def test_other_timesteps_are_noted(options: dict[str, Any], said: str) -> None:
    (note,) = timestep_notes(options, LEADING)
    assert said in note


def test_trailing_timesteps_are_followed() -> None:
    scheduler = {"timestep_spacing": "trailing", "steps_offset": 1}
    assert [*timestep_notes(scheduler, TRAILING)] == []
    (note,) = timestep_notes({"steps_offset": 1}, TRAILING)
    assert "schedule=leading follows it" in note
    assert [*timestep_notes(scheduler, {"_target_": "my.Schedule"})] == []


@pytest.mark.parametrize("options", [{}, {"timestep_spacing": "leading", "steps_offset": 1}])
def test_the_same_timesteps_are_not(options: dict[str, Any]) -> None:
    assert [*timestep_notes(options, LEADING)] == []


def test_the_shipped_models_are_followed(tmp_path: Path) -> None:
    assert [*timestep_notes(scheduler_of(zoo_path("tiny_sd")), LEADING)] == []
    for name in ("tiny_sd3", "tiny_flux"):
        scheduler = scheduler_of(zoo_path(name))
        assert flow_scheduler_fault(scheduler["_class_name"], scheduler) is None
    assert scheduler_of(tmp_path) == {}


def test_unipc_is_followed_where_it_samples_a_flow() -> None:
    assert flow_scheduler_fault(UNIPC, FLOW | {"shift_terminal": 0.1}) is None
    assert "by UniPC" in str(flow_scheduler_fault(UNIPC, {"use_flow_sigmas": False}))


def test_unipc_of_a_higher_order_is_noted() -> None:
    options = {"_class_name": UNIPC, "use_flow_sigmas": True}
    (note,) = solver_notes(options)
    assert "UniPC of order 2" in note
    assert "dpm_solver" not in note
    assert [*solver_notes(options | {"solver_order": 1})] == []
