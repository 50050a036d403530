"""Settings in a pipeline's scheduler configuration that the noise schedules here can't follow, and
which models were distilled to few steps.

Torch-free, for checks of a configuration; `noise_levels.py` follows the rest.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlfactory.model.pipelines.families import BY_PIPELINE, FAMILIES
from rlfactory.model.pipelines.local_models import folder_of, index_of, pipeline_of, read_json

STEPS = {path: steps for family in FAMILIES for path, steps in family.distilled.items()}
"""The sampling steps of published models. Files of Z-Image-Turbo do not tell it from Z-Image."""
SHORTEST = 4
"""Of the models that their files tell."""

FLOW = "FlowMatch"
"""How the names of diffusers' schedulers for rectified flows begin."""
UNIPC = "UniPCMultistepScheduler"
DPM_SOLVER = "DPMSolverMultistepScheduler"
SPACINGS_OF_SIGMAS = ("use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas")
FLOW_SIGMAS: Mapping[str, tuple[Any, Any]] = {
    "use_flow_sigmas": (False, True),
    "prediction_type": ("epsilon", "flow_prediction"),
    "final_sigmas_type": ("zero", "zero"),
    # spacings are of the sigmas of betas, in the place of flow sigmas
    **dict.fromkeys(
        ("use_dynamic_shifting", "thresholding", "use_lu_lambdas", *SPACINGS_OF_SIGMAS),
        (False, False),
    ),
}
FOLLOWED: Mapping[str, Mapping[str, tuple[Any, Any]]] = {
    UNIPC: FLOW_SIGMAS,
    DPM_SOLVER: {
        **FLOW_SIGMAS,
        "algorithm_type": ("dpmsolver++", "dpmsolver++"),
        "solver_type": ("midpoint", "midpoint"),
    },
}
"""Of multistep schedulers, which sample rectified flows too, options with their default and the one
value that is followed; here steps of first order are taken at their noise levels."""
CONVERSIONS = (*SPACINGS_OF_SIGMAS, "shift_terminal")
"""Options that change shifted noise levels."""


BETAS = ("DDIMScheduler", "PNDMScheduler", "DDPMScheduler")
"""Schedulers of published models that predict noise, whose samples DDIM's steps stand for."""
PREDICTIONS = ("epsilon", "v_prediction")
"""Values of `prediction_type` that a model on a schedule of betas may have."""
SPACINGS = ("leading", "trailing")
"""Values of `timestep_spacing` that a schedule of this name follows."""


def spacing_of(schedule: Mapping[str, Any]) -> str | None:
    """The `timestep_spacing` of the group `schedule`; None of a flow's schedule, or one's own."""
    classes = {f"rlfactory.dynamics.schedule.{name.title()}": name for name in SPACINGS}
    return classes.get(str(schedule.get("_target_")))


def scheduler_of(folder: Path) -> Mapping[str, Any]:
    """The scheduler configuration of a pipeline's folder; empty if it has none."""
    return read_json(folder / "scheduler" / "scheduler_config.json")


def own_shift(name: str, scheduler: Mapping[str, Any]) -> float:
    """The fixed shift of a rectified flow's scheduler of this class; one made of another's
    configuration may hold both keys.
    """
    return float(scheduler["shift" if name.startswith(FLOW) else "flow_shift"])


def flow_scheduler_fault(name: str, scheduler: Mapping[str, Any]) -> str | None:
    """Why no schedule follows a flow's scheduler of this class; None if `noise_levels` does."""
    train_steps = scheduler.get("num_train_timesteps", 1000)
    others = {
        key: scheduler.get(key, default)
        for key, (default, followed) in FOLLOWED.get(name, {}).items()
        if scheduler.get(key, default) != followed
    }
    if others:
        said = ", ".join(f"{key}={str(value).lower()}" for key, value in others.items())
        fault = f"is sampled by {name} with {said}"
    elif name not in FOLLOWED and not name.startswith(FLOW):
        fault = f"is sampled by {name}"
    elif scheduler.get("invert_sigmas"):
        fault = "has a scheduler with invert_sigmas=true"
    elif train_steps != 1000:
        fault = f"has a scheduler with num_train_timesteps={train_steps}"
    else:
        return None
    return (
        f"{fault}, which no schedule here follows; if the network fits another one, type"
        " model.path=FOLDER of the pipeline saved with"
        " pipe.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)"
    )


def noise_scheduler_fault(name: str, scheduler: Mapping[str, Any]) -> str | None:
    """Why a model doesn't predict noise or v on a schedule of betas; None if it does."""
    predicted = scheduler.get("prediction_type", "epsilon")
    if predicted not in PREDICTIONS:
        return f"predicts {predicted} ({name}); allowed is one of {', '.join(PREDICTIONS)}"
    if predicted == "epsilon" and scheduler.get("rescale_betas_zero_snr"):
        return f"predicts epsilon ({name}) at rescale_betas_zero_snr=true, where all is noise"
    if not {"beta_start", "beta_schedule", "trained_betas"} & {*scheduler}:
        return f"is sampled by {name}, which has no betas; allowed are schedulers as DDIM's"
    if (train_steps := scheduler.get("num_train_timesteps", 1000)) != 1000:
        return f"has {name} with num_train_timesteps={train_steps}; schedules here are of 1000"
    return None


def timestep_notes(scheduler: Mapping[str, Any], schedule: Mapping[str, Any]) -> Iterator[str]:
    """Where a run with the group `schedule` departs from the `scheduler` of a model that predicts
    noise, by its configuration; of a schedule of one's own nothing is known.
    """
    if (ours := spacing_of(schedule)) is None:
        return
    if (name := scheduler.get("_class_name", BETAS[0])) not in BETAS:
        yield f"the pipeline samples by {name}; here DDIM's steps are taken on its betas"
    spacing = scheduler.get("timestep_spacing", "leading")
    others = {"timestep_spacing": spacing} if spacing != ours else {}
    others |= {key: scheduler[key] for key in CONVERSIONS if scheduler.get(key)}
    for key, value in others.items():
        shown = str(value).lower()
        follows = f"schedule={shown} follows it"
        remedy = follows if shown in SPACINGS else "no schedule here follows it"
        yield (
            f"the pipeline's scheduler has {key}={shown}: schedule={ours} samples at other"
            f" timesteps, and {remedy}"
        )
    offset = scheduler.get("steps_offset")
    if not others and ours == "leading" and offset not in (None, schedule.get("steps_offset")):
        yield (
            f"the pipeline's scheduler has steps_offset={offset}, and this run"
            f" {schedule.get('steps_offset')}: schedule.steps_offset={offset} follows it"
        )


def solver_notes(scheduler: Mapping[str, Any]) -> Iterator[str]:
    """Where a flow's pipeline samples by steps of a higher order than evaluations do."""
    name, order = scheduler.get("_class_name"), scheduler.get("solver_order", 2)
    if name in FOLLOWED and order > 1:
        solver = "a DPM-Solver" if name == DPM_SOLVER else "UniPC"
        note = f"the pipeline samples by {solver} of order {order}, and evaluations by steps of"
        note += " order 1 at its noise levels"
        same = ": dynamics=dpm_solver draws rollouts as the pipeline does"
        yield note + same if name == DPM_SOLVER else note


def distilled_steps(path: str) -> int | None:
    """The steps that a model was distilled to; None where neither its id nor its files say so."""
    if path in STEPS:
        return STEPS[path]
    folder = folder_of(path)
    if folder is None:
        return None
    family = BY_PIPELINE.get(pipeline_of(folder) or "")
    if family is not None and family.steps is not None:
        return family.steps
    return SHORTEST if _is_distilled(folder) else None


def _is_distilled(folder: Path) -> bool:
    """FLUX.2's index says so; FLUX.1 schnell has neither guidance as an input nor a shift."""
    if index_of(folder).get("is_distilled"):
        return True
    if pipeline_of(folder) != "FluxPipeline":
        return False
    network, scheduler = read_json(folder / "transformer" / "config.json"), scheduler_of(folder)
    has_shift = scheduler.get("use_dynamic_shifting") or scheduler.get("shift", 1.0) != 1.0
    return bool(network and scheduler) and not network.get("guidance_embeds") and not has_shift
