"""The few lines of plain diffusers or transformers that load an export and draw from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler
from torch import Tensor

from rlfactory.dynamics.schedule import diffusers_sigmas

Config = Mapping[str, Any]

TRUNCATED = (
    "The run told the network whole thousandths of the time (`model.timesteps=truncated`);"
    " diffusers tells it the exact time."
)
OTHER_LEVELS = (
    "The run's evaluation takes other noise levels than the pipeline would choose: `sigmas` hands"
    " them over. Without it the pipeline draws at its own, and its pictures are others."
)


@dataclass(frozen=True)
class Snippet:
    """Code that runs as it is, and what a reader should know of what it draws."""

    code: str
    notes: tuple[str, ...] = ()


def image_snippet(
    model: Any, config: Config, sigmas: Tensor, *, base: str | None, path: str, prompt: str
) -> Snippet:
    """Pictures as the run's evaluation draws them, at its times `sigmas` `[n + 1]` and its size.

    With a `base`, `path` holds adapters for it; else it is a pipeline.
    """
    kind, dtype = model.pipeline, config.get("precision", {}).get("rollout", "float32")
    loads = [f"pipe = {kind}.from_pretrained({base or path!r}, dtype=torch.{dtype})"]
    imports = [kind]
    if base:
        loads.append(f"pipe.load_lora_weights({path!r})")
    if scheduler := _ddim_beside(model, config):
        imports = ["DDIMScheduler", kind]
        shown = _keywords(scheduler)
        loads.append(f"pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config, {shown})")
    size = config["evaluation"]["size"] or config["model"]["size"]
    arguments = {"num_inference_steps": len(sigmas) - 1, "height": size, "width": size}
    levels = _levels(model, sigmas)
    call = [repr(prompt), _keywords(arguments | model.pipeline_arguments()), *levels]
    head = ["import torch", f"from diffusers import {', '.join(imports)}", ""]
    code = [*head, *loads, f"image = pipe({', '.join(call)}).images[0]"]
    truncated = config["model"].get("timesteps") == "truncated"
    notes = [*([TRUNCATED] if truncated else []), *([OTHER_LEVELS] if levels else [])]
    return Snippet("\n".join(code), tuple(notes))


def text_snippet(config: Config, *, adapters: bool, path: str, prompt: str) -> Snippet:
    """A text as the run draws them."""
    kind = "AutoPeftModelForCausalLM" if adapters else "AutoModelForCausalLM"
    dynamics = config["dynamics"]
    options = {"max_new_tokens": dynamics["length"], "do_sample": True}
    options |= {name: dynamics[name] for name in ("temperature", "top_k", "top_p")}
    begin = "tokenizer.eos_token + " if config["model"]["begin_with_end"] else ""
    head, dtype = [f"from transformers import {kind}, AutoTokenizer"], ""
    if adapters:
        # the base may have been saved in half precision, and the run saw it in float32
        head = [
            "import torch",
            f"from peft import {kind}",
            "from transformers import AutoTokenizer",
        ]
        dtype = ", dtype=torch.float32"
    code = [
        *head,
        "",
        f"tokenizer = AutoTokenizer.from_pretrained({path!r})",
        f"model = {kind}.from_pretrained({path!r}{dtype})",
        f'begun = tokenizer({begin}{prompt!r}, return_tensors="pt")',
        f"tokens = model.generate(**begun, {_keywords(options)})",
        "print(tokenizer.decode(tokens[0]))",
    ]
    return Snippet("\n".join(code))


def suit_scheduler(pipe: Any, config: Config) -> None:
    """Give a pipeline that leaves whole the scheduler that the run's evaluation followed."""
    old, schedule = pipe.scheduler.config, config["schedule"]
    if "steps_offset" in schedule:
        pipe.scheduler = DDIMScheduler.from_config(old, **_ddim_options(config))
    elif isinstance(schedule.get("shift"), int | float):
        fixed = {"shift": float(schedule["shift"]), "use_dynamic_shifting": False}
        pipe.scheduler = FlowMatchEulerDiscreteScheduler.from_config(old, **fixed)


def _ddim_options(config: Config) -> dict[str, object]:
    return {
        "timestep_spacing": "leading",
        "steps_offset": config["schedule"]["steps_offset"],
        "set_alpha_to_one": False,
        "clip_sample": False,
    }


def _ddim_beside(model: Any, config: Config) -> dict[str, object]:
    """What DDIM a pipeline of noise needs in place of its scheduler; nothing where it has it."""
    if model.process != "vp":
        return {}
    scheduler, options = model.pipe.scheduler, _ddim_options(config)
    same = all(scheduler.config.get(name) == value for name, value in options.items())
    return {} if same and type(scheduler) is DDIMScheduler else options


def _levels(model: Any, sigmas: Tensor) -> list[str]:
    """The `sigmas` argument of a flow, where the pipeline's own choice is another one.

    The scheduler shifts what it is given, so it is given what becomes `sigmas` by that.
    """
    if model.process != "flow":
        return []
    scheduler, steps = model.pipe.scheduler.config, len(sigmas) - 1
    shift = model.resolution.shift if scheduler.use_dynamic_shifting else float(scheduler.shift)
    even = torch.linspace(1, 1 / steps, steps)
    given = _unshifted(sigmas[:-1].cpu(), shift)
    own = even
    if model.pipeline != "FluxPipeline":  # the one that asks its scheduler for even levels
        own = _unshifted(diffusers_sigmas(steps, shift)[:-1], shift)
    if torch.allclose(given, own, rtol=0, atol=1e-5):
        return []
    if torch.allclose(given, even, rtol=0, atol=1e-5):
        return [f"sigmas=[1 - i / {steps} for i in range({steps})]"]
    return [f"sigmas=[{', '.join(f'{level:.7g}' for level in given.tolist())}]"]


def _unshifted(sigmas: Tensor, shift: float) -> Tensor:
    """What a scheduler of that shift turns into `sigmas`."""
    sigmas = sigmas.double()
    return (sigmas / (shift - (shift - 1) * sigmas)).float()


def _keywords(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())
