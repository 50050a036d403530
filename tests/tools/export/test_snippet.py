"""The lines that are printed: what a pipeline must be told to draw as the run did."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    FlowMatchEulerDiscreteScheduler,
    PNDMScheduler,
    UniPCMultistepScheduler,
)
from tiny_language_models import save_language_model

from rlfactory.dynamics.schedule import Leading, Schedule, Trailing
from rlfactory.model.base import Resolution
from rlfactory.model.pipelines.noise_levels import flow_resolution, noise_levels
from rlfactory.tools.export.snippet import (
    EXACT,
    ONLY_OWN_LEVELS,
    OTHER_LEVELS,
    TRUNCATED,
    Source,
    image_snippet,
    set_scheduler,
    text_snippet,
)

NOISE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
LEADING = {"steps": 50, "steps_offset": 1}


def model(scheduler: Any, pipeline: str, shift: float = 3.0) -> Any:
    vp = pipeline == "StableDiffusionPipeline"
    return SimpleNamespace(
        pipeline=pipeline,
        process="vp" if vp else "flow",
        media="videos" if pipeline == "WanPipeline" else "images",
        pictures=False,
        trained_networks=["transformer"],
        second_part="",
        pipe=SimpleNamespace(scheduler=scheduler),
        resolution=Resolution((4, 8, 8), shift=shift),
        pipeline_arguments=lambda: {"guidance_scale": 2.0},
        pipeline_settings=lambda: (),
    )


def config(schedule: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {
        "model": {"size": 64, "timesteps": "exact"},
        "evaluation": {"size": None},
        "schedule": schedule,
        **others,
    }


def drawn_at(ours: Any, values: dict[str, Any], sigmas: torch.Tensor) -> torch.Tensor:
    """The noise levels that the call in the printed code makes of the scheduler."""
    asked: dict[str, Any] = {}
    code = image_snippet(ours, values, sigmas, Source("p"), prompt="a").code

    def pipe(prompt: str, **arguments: Any) -> SimpleNamespace:
        asked.update(arguments)
        return SimpleNamespace(images=[prompt])

    exec(code.splitlines()[-1], {"pipe": pipe})
    assert (asked["height"], asked["width"], asked["guidance_scale"]) == (64, 64, 2.0)
    count = asked["num_inference_steps"]
    given = asked.get("sigmas")
    if ours.pipeline == "FluxPipeline" and given is None:
        given = [1 - i / count for i in range(count)]
    options = {"mu": torch.tensor(ours.resolution.shift).log().item()}
    ours.pipe.scheduler.set_timesteps(count, sigmas=given, **options)
    return ours.pipe.scheduler.sigmas


@pytest.mark.parametrize("pipeline", ["StableDiffusion3Pipeline", "FluxPipeline"])
@pytest.mark.parametrize("kind", ["uniform", "diffusers"])
@pytest.mark.parametrize("shift", [None, 2.0, "dynamic"])
@pytest.mark.parametrize("whole", [False, True])
def test_a_flow_is_drawn_at_the_runs_own_levels(
    pipeline: str, kind: Any, shift: Any, whole: bool
) -> None:
    dynamic = pipeline == "FluxPipeline"
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=dynamic)
    ours = model(scheduler, pipeline, 1.7 if dynamic else 3.0)
    values = config({"kind": kind, "steps": 5, "shift": shift})
    sigmas = Schedule(kind=kind, steps=5, shift=shift).sigmas(ours.resolution.shift, tokens=16)
    if whole:
        set_scheduler(ours.pipe, values)
    found = drawn_at(ours, values, sigmas)
    torch.testing.assert_close(found, sigmas, rtol=0, atol=1e-5)


@pytest.mark.parametrize("pipeline", ["StableDiffusion3Pipeline", "FluxPipeline"])
@pytest.mark.parametrize("kind", ["uniform", "diffusers"])
@pytest.mark.parametrize("option", ["shift_terminal", "use_karras_sigmas", "use_beta_sigmas"])
def test_a_converted_schedule_is_drawn_at_the_runs_own_levels(
    pipeline: str, kind: Any, option: str
) -> None:
    dynamic = pipeline == "FluxPipeline"
    options = {option: 0.02 if option == "shift_terminal" else True}
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3, use_dynamic_shifting=dynamic, **options)
    ours = model(scheduler, pipeline)
    ours.resolution = flow_resolution((4, 8, 8), 16, scheduler)
    values = config({"kind": kind, "steps": 5, "shift": None})
    sigmas = noise_levels(Schedule(kind=kind, steps=5), ours.resolution)
    torch.testing.assert_close(drawn_at(ours, values, sigmas), sigmas, rtol=0, atol=1e-5)
    code = image_snippet(ours, values, sigmas, Source("p"), prompt="a").code
    own = "uniform" if dynamic else "diffusers"
    assert ("sigmas=" in code) is (kind != own)


def code_and_notes(kind: Any, pipeline: str, **others: Any) -> tuple[str, tuple[str, ...]]:
    scheduler = FlowMatchEulerDiscreteScheduler(
        shift=3.0, use_dynamic_shifting=pipeline == "FluxPipeline"
    )
    ours = model(scheduler, pipeline)
    values = config({"kind": kind, "steps": 5, "shift": None}, **others)
    sigmas = Schedule(kind=kind, steps=5).sigmas(3.0)
    snippet = image_snippet(ours, values, sigmas, Source("p", "'b'"), prompt="a")
    return snippet.code, snippet.notes


@pytest.mark.parametrize(
    ("pipeline", "own", "other"),
    [
        ("StableDiffusion3Pipeline", "diffusers", "uniform"),
        ("FluxPipeline", "uniform", "diffusers"),
    ],
)
def test_what_the_pipeline_does_by_itself_is_not_said(pipeline: str, own: str, other: str) -> None:
    code, notes = code_and_notes(own, pipeline)
    assert ("sigmas" in code, notes) == (False, ())
    code, notes = code_and_notes(other, pipeline)
    assert ("sigmas=[" in code, notes) == (True, (OTHER_LEVELS,))
    assert ("range(5)" in code) is (other == "uniform")


def test_a_shift_of_the_runs_own_is_in_a_whole_pipeline() -> None:
    pipe = SimpleNamespace(scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True))
    set_scheduler(pipe, config({"kind": "uniform", "steps": 5, "shift": None}))
    assert pipe.scheduler.config.use_dynamic_shifting
    set_scheduler(pipe, config({"kind": "uniform", "steps": 5, "shift": 2}))
    assert (pipe.scheduler.config.shift, pipe.scheduler.config.use_dynamic_shifting) == (2.0, False)


@pytest.mark.parametrize(
    ("schedule", "times"), [(LEADING, Leading(**LEADING)), ({"steps": 50}, Trailing(steps=50))]
)
def test_noise_is_undone_by_ddim_whatever_the_base_had(
    schedule: dict[str, int], times: Leading | Trailing
) -> None:
    base = PNDMScheduler(**NOISE, skip_prk_steps=True, steps_offset=0)
    target = f"rlfactory.dynamics.schedule.{type(times).__name__}"
    ours = model(base, "StableDiffusionPipeline")
    values = config({"_target_": target, **schedule})
    sigmas = times.sigmas(1.0)
    code = image_snippet(ours, values, sigmas, Source("p", "'b'"), prompt="a").code
    (line,) = [line for line in code.splitlines() if line.startswith("pipe.scheduler")]
    replaced = SimpleNamespace(scheduler=base)
    exec(line, {"pipe": replaced, "DDIMScheduler": DDIMScheduler})
    whole = SimpleNamespace(scheduler=base)
    set_scheduler(whole, values)
    for pipe in (replaced, whole):
        assert type(pipe.scheduler) is DDIMScheduler
        pipe.scheduler.set_timesteps(50)
        timesteps = (1000 * sigmas[:-1]).round().long()
        assert torch.equal(pipe.scheduler.timesteps, timesteps)
        assert pipe.scheduler.final_alpha_cumprod == base.alphas_cumprod[0]
        assert pipe.scheduler.config.clip_sample is False
        assert torch.equal(pipe.scheduler.alphas_cumprod, base.alphas_cumprod)
    again = model(whole.scheduler, "StableDiffusionPipeline")
    code = image_snippet(again, values, sigmas, Source("p", "'b'"), prompt="a").code
    assert "DDIMScheduler" not in code


def test_precision_and_truncated_times_are_told() -> None:
    truncated = {"model": {"size": 64, "timesteps": "truncated"}}
    half = {"precision": {"rollout": "bfloat16"}}
    code, notes = code_and_notes("diffusers", "StableDiffusion3Pipeline", **truncated, **half)
    assert "dtype=torch.bfloat16" in code
    assert notes == (TRUNCATED,)


@pytest.mark.parametrize("kind", ["dpm", "uniform", "diffusers"])
@pytest.mark.parametrize("shift", [None, 2.0, "dynamic"])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("timesteps", ["truncated", "exact"])
def test_steps_of_first_order_replace_those_of_a_dpm_solver(
    kind: Any, shift: Any, whole: bool, timesteps: str
) -> None:
    base = DPMSolverMultistepScheduler(
        flow_shift=3.0, use_flow_sigmas=True, prediction_type="flow_prediction"
    )
    ours = model(base, "SanaPipeline")
    values = config({"kind": kind, "steps": 5, "shift": shift})
    values["model"]["timesteps"] = timesteps
    sigmas = Schedule(kind=kind, steps=5, shift=shift).sigmas(3.0, tokens=64)
    if whole:
        set_scheduler(ours.pipe, values)
    snippet = image_snippet(ours, values, sigmas, Source("p", None if whole else "'b'"), prompt="a")
    pipe = SimpleNamespace(scheduler=ours.pipe.scheduler)
    chosen = [line for line in snippet.code.splitlines() if line.startswith("pipe.scheduler")]
    assert len(chosen) == (0 if whole else 1)
    classes = (DPMSolverMultistepScheduler, FlowMatchEulerDiscreteScheduler)
    for line in chosen:
        exec(line, {"pipe": pipe, **{kind.__name__: kind for kind in classes}})
    asked: dict[str, Any] = {}
    call = snippet.code.splitlines()[-1]
    exec(call, {"pipe": lambda **given: asked.update(given) or SimpleNamespace(images=[0])})
    scheduler = pipe.scheduler
    if "sigmas" in asked:
        scheduler.set_timesteps(sigmas=asked["sigmas"])
    else:
        scheduler.set_timesteps(5)
    torch.testing.assert_close(scheduler.sigmas, sigmas, rtol=0, atol=1e-5)
    assert scheduler.config.get("solver_order", 1) == 1
    # a DPM-Solver truncates times itself
    truncates = "solver_order" in scheduler.config
    assert torch.equal(scheduler.timesteps, scheduler.timesteps.trunc()) is truncates
    differs = (TRUNCATED, EXACT)[truncates]
    assert (differs in snippet.notes) is ((timesteps == "exact") is truncates)
    assert len({TRUNCATED, EXACT} & {*snippet.notes}) <= 1


def test_a_multistep_scheduler_takes_the_runs_steps_of_first_order() -> None:
    options = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}
    ours = model(UniPCMultistepScheduler(**options), "WanPipeline")
    values = config({"kind": "unipc", "steps": 5, "shift": None})
    values["model"] |= {"size": [32, 48], "timesteps": "truncated"}
    sigmas = Schedule(kind="unipc", steps=5).sigmas(3.0)
    snippet = image_snippet(ours, values, sigmas, Source("p"), prompt="a")
    *_, line, call = snippet.code.splitlines()
    exec(line, {"pipe": ours.pipe, "UniPCMultistepScheduler": UniPCMultistepScheduler})
    scheduler = ours.pipe.scheduler
    assert (scheduler.config.solver_order, scheduler.config.flow_shift) == (1, 3.0)
    x, velocity = torch.randn(2, 1, 4, 8, 8).unbind()
    scheduler.set_timesteps(5)
    drawn = scheduler.step(velocity, scheduler.timesteps[0], x).prev_sample
    torch.testing.assert_close(drawn, x + (sigmas[1] - sigmas[0]) * velocity, atol=1e-4, rtol=0)
    assert "height=32, width=48" in call
    assert call.endswith(".frames[0]")
    assert snippet.notes == ()
    values["model"]["timesteps"] = "exact"
    assert image_snippet(ours, values, sigmas, Source("p"), prompt="a").notes == (EXACT,)


def test_other_levels_than_a_pipeline_can_be_given_are_told() -> None:
    options = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}
    ours = model(UniPCMultistepScheduler(**options), "WanPipeline")
    values = config({"kind": "uniform", "steps": 5, "shift": None})
    sigmas = Schedule(kind="uniform", steps=5).sigmas(3.0)
    snippet = image_snippet(ours, values, sigmas, Source("p"), prompt="a")
    assert "sigmas=" not in snippet.code
    assert snippet.notes == (EXACT, ONLY_OWN_LEVELS)
    values["schedule"]["shift"] = 2.0
    set_scheduler(ours.pipe, values)
    assert ours.pipe.scheduler.config.flow_shift == 2.0


FLOW_SIGMAS = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}


@pytest.mark.parametrize(
    ("pipeline", "scheduler", "own"),
    [
        ("ErnieImagePipeline", FlowMatchEulerDiscreteScheduler(shift=3.0), "uniform"),
        ("LTXPipeline", FlowMatchEulerDiscreteScheduler(shift=3.0), "uniform"),
        ("WanPipeline", FlowMatchEulerDiscreteScheduler(shift=3.0), "diffusers"),
        ("WanPipeline", UniPCMultistepScheduler(**FLOW_SIGMAS), "unipc"),
    ],
)
@pytest.mark.parametrize("kind", ["uniform", "diffusers", "unipc"])
def test_pipelines_that_take_no_levels_have_the_runs_shift(
    pipeline: str, scheduler: Any, own: str, kind: Any
) -> None:
    ours = model(scheduler, pipeline)
    values = config({"kind": kind, "steps": 5, "shift": 2.0})
    sigmas = noise_levels(Schedule(kind=kind, steps=5, shift=2.0), ours.resolution)
    snippet = image_snippet(ours, values, sigmas, Source("p", "'b'"), prompt="a")
    assert "sigmas=" not in snippet.code
    assert (ONLY_OWN_LEVELS in snippet.notes) is (kind != own)
    names = {
        "pipe": SimpleNamespace(scheduler=scheduler),
        type(scheduler).__name__: type(scheduler),
    }
    for line in snippet.code.splitlines():
        if line.startswith("pipe.scheduler"):
            exec(line, names)
    # the first two pipelines give their scheduler even levels
    even = {"sigmas": [1 - i / 5 for i in range(5)]} if own == "uniform" else {}
    found = names["pipe"].scheduler
    found.set_timesteps(5, **even)
    assert torch.allclose(found.sigmas, sigmas, rtol=0, atol=1e-5) is (kind == own)


def test_an_answer_of_a_chat_model_is_asked_for_by_its_template(tmp_path: Path) -> None:
    folder = str(save_language_model(tmp_path, "qwen3"))
    dynamics = {"length": 4, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    values = {"dynamics": dynamics, "model": {"chat_options": {"enable_thinking": False}}}
    asked = [{"role": "user", "content": "2 + 2?"}]
    code = text_snippet(
        values,
        Source(folder),
        prompt="user: 2 + 2?",
        begins_with_end=False,
        generation={"do_sample": True, "max_new_tokens": 4, "pad_token_id": 0},
        messages=asked,
    ).code
    names: dict[str, Any] = {}
    exec(code, names)
    text = names["tokenizer"].decode(names["tokens"][0])
    begun = "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert text.startswith(begun)
    assert len(text) > len(begun)
