"""Code for plain diffusers or transformers that loads an export and samples from it."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import diffusers
import torch
from torch import Tensor

from rlfactory.dynamics.schedule import Schedule
from rlfactory.model.pipelines.families import BY_PIPELINE
from rlfactory.model.pipelines.local_models import UNUSED, height_and_width
from rlfactory.model.pipelines.modular import is_modular
from rlfactory.model.pipelines.noise_levels import noise_levels
from rlfactory.model.pipelines.scheduler_config import (
    DPM_SOLVER,
    UNIPC,
    own_shift,
    spacing_of,
)
from rlfactory.prompts.ops.chat import Message
from rlfactory.utils.text import typed_text

Config = Mapping[str, Any]

TRUNCATED = (
    "The run rounded the network's timesteps down to integers (`model.timesteps=truncated`);"
    " diffusers passes the exact time, and its samples differ."
)
EXACT = (
    "The run gave the network exact times (`model.timesteps=exact`); the scheduler rounds"
    " them down to integers, and its samples differ."
)
OTHER_LEVELS = (
    "The run's evaluation uses other noise levels than the pipeline's default: `sigmas` sets them."
    " Without it the pipeline uses its own, and its images differ."
)
ONLY_OWN_LEVELS = (
    "The run's evaluation uses other noise levels than the pipeline, which can't be given any: its"
    " samples differ."
)
PICTURE = (
    "picture = Image.new('RGB', ({0}, {1}), 'white')"
    "  # or yours: Image.open(PATH).convert('RGB').resize(({0}, {1}), Image.LANCZOS)"
)
STOP_AFTER = "The run ends a response at `dynamics.stop` only after {} tokens; the code at once."


@dataclass(frozen=True)
class Snippet:
    """Code that runs unchanged, and notes on how its samples differ from the run's."""

    code: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """The files that the code loads.

    Attributes:
        path: the exported folder, or its id on the hub.
        base: the Python arguments that name the base model, if `path` holds LoRA adapters; None if
            it holds a complete model.
        file: the file of the adapters, if it has another name than diffusers looks for.
        imports: lines that `base` needs.
    """

    path: str
    base: str | None = None
    file: str | None = None
    imports: Sequence[str] = ()


def image_snippet(
    model: Any, config: Config, sigmas: Tensor, source: Source, *, prompt: str
) -> Snippet:
    """Code that samples as the run's evaluation does, at its size and noise levels `[n + 1]`."""
    kind, dtype = model.pipeline, config.get("precision", {}).get("rollout", "float32")
    whole = source.base or repr(source.path)
    imports, own = [kind], model.pipeline_arguments()
    # diffusers asks for every part that the class doesn't call optional, such as SD3's T5
    optional = getattr(model.pipe, "_optional_components", ())
    parts = getattr(model.pipe, "components", {}).items()
    lacks = [f", {n}=None" for n, part in parts if part is None and n not in optional]
    given = "".join(part for part in lacks if part not in whole)
    loads = [f"pipe = {kind}.from_pretrained({whole}{given}, dtype=torch.{dtype})"]
    is_video = model.media == "videos"
    sample = "frames = pipe({}).frames[0]" if is_video else "image = pipe({}).images[0]"
    if is_modular(model.pipe):
        guidance = own.pop("guidance_scale", None)
        imports, loads = _loading_of_blocks(model.pipe, whole, dtype, guidance)
        sample = 'image = pipe({}, output="images")[0]'
    if source.base:
        named = f", weight_name={source.file!r}" if source.file else ""
        for part in model.trained_networks:
            if part == model.second_part:  # diffusers' own line loads those of the first alone
                given = f"{source.path!r}, prefix={part!r}, use_safetensors=True{named}"
                loads.append(f"pipe.{part}.load_lora_adapter({given})")
            else:
                loads.append(f"pipe.load_lora_weights({source.path!r}{named})")
    known = inspect.signature(getattr(diffusers, kind).__call__).parameters
    takes_levels = "sigmas" in known or "kwargs" in known  # a modular pipeline takes any keyword
    name, options = _replacement(model.pipe.scheduler, config, with_shift=not takes_levels)
    if any(model.pipe.scheduler.config.get(key) != value for key, value in options.items()):
        imports = sorted([name, *imports])
        shown = _keywords(options)
        loads.append(f"pipe.scheduler = {name}.from_config(pipe.scheduler.config, {shown})")
    steps = len(sigmas) - 1
    multistep = is_multistep(model.pipe.scheduler)
    if multistep:
        # it takes the steps of the run
        first_order = f"solver_order=1, disable_corrector=[*range({steps})]"
        loads.append(f"pipe.scheduler = {name}.from_config(pipe.scheduler.config, {first_order})")
        imports = sorted([kind, name])
    height, width = height_and_width(config["evaluation"]["size"] or config["model"]["size"])
    arguments = {"num_inference_steps": steps, "height": height, "width": width}
    levels = [] if name == DPM_SOLVER else _levels(model, sigmas, name, options)
    notes = [OTHER_LEVELS] if levels else []
    if levels and (multistep or not takes_levels):
        levels, notes = [], [ONLY_OWN_LEVELS]
    call = [f"prompt={prompt!r}", _keywords(arguments | own), *levels]
    head = ["import torch", f"from diffusers import {', '.join(imports)}", *source.imports, ""]
    if model.pictures:
        head.insert(-1, "from PIL import Image")
        # which has that size in evaluations of another one too
        loads.append(PICTURE.format(*reversed(height_and_width(config["model"]["size"]))))
        call.insert(1, "image=picture")
    code = [*head, *loads, *model.pipeline_settings(), sample.format(", ".join(call))]
    rounds = multistep or name == DPM_SOLVER
    told = {"truncated": TRUNCATED, "exact": EXACT}.get(config["model"].get("timesteps"))
    if told is not None and rounds == (told == EXACT):
        notes = [told, *notes]
    return Snippet("\n".join(code), tuple(notes))


def _loading_of_blocks(
    pipe: Any, whole: str, dtype: str, guidance: object
) -> tuple[list[str], list[str]]:
    """The imports for a modular pipeline, and the lines that load it.

    Its guidance is that of a component, and steps that no adapter takes are left out of its blocks.
    """
    blocks = pipe.default_blocks_name
    unused = [name for name in UNUSED if name in getattr(diffusers, blocks)().sub_blocks]
    loads = [
        f"blocks = {blocks}()",
        *(f"del blocks.sub_blocks[{name!r}]" for name in unused),
        f"pipe = blocks.init_pipeline({whole})",
        f"pipe.load_components(dtype=torch.{dtype})",
    ]
    if guidance is None:
        return [blocks], loads
    guider = type(pipe.guider).__name__
    loads.append(f"pipe.update_components(guider={guider}(guidance_scale={guidance!r}))")
    return [guider, blocks], loads


def text_snippet(
    config: Config,
    source: Source,
    *,
    prompt: str,
    begins_with_end: bool,
    generation: Mapping[str, Any],
    messages: Sequence[Message] | None = None,
    auto_class: str = "AutoModelForCausalLM",
) -> Snippet:
    """Code that samples a text as the run does; with `messages`, an answer to them.

    `generation` are options that take the place of all of the model's own: none of them is left in
    force, whichever there are.
    """
    dynamics = config["dynamics"]
    begin = "tokenizer.eos_token + " if begins_with_end else ""
    head = [f"from transformers import {auto_class}, AutoTokenizer, GenerationConfig"]
    loads = [f"model = {auto_class}.from_pretrained({source.path!r})"]
    if source.base:
        head = ["import torch", "from peft import PeftModel", *head, *source.imports]
        # the base may be saved in half precision, and the run loaded it in float32
        dtype = "dtype=torch.float32"
        loads = [
            f"base = {auto_class}.from_pretrained({source.base}, {dtype})",
            f"model = PeftModel.from_pretrained(base, {source.path!r})",
        ]
    options, typed = dict(generation), dynamics.get("stop") or ()
    # stop texts that are matched as tokens are among the end tokens of `generation`
    stop = [] if dynamics.get("stop_match") == "token" else [typed_text(text) for text in typed]
    if stop:
        options["stop_strings"] = stop
    begun = [f'begun = tokenizer({begin}{prompt!r}, return_tensors="pt")']
    if messages is not None:
        given = config["model"].get("chat_options")
        extra = f", {_keywords(given)}" if given else ""
        begun = [
            f"messages = {[*messages]!r}",
            "begun = tokenizer.apply_chat_template(",
            f"    messages, add_generation_prompt=True{extra},",
            '    return_tensors="pt", return_dict=True,',
            ")",
        ]
    code = [
        *head,
        "",
        f"tokenizer = AutoTokenizer.from_pretrained({source.path!r})",
        *loads,
        "# in the place of the model's own, which may penalise or leave out tokens",
        "model.generation_config = GenerationConfig(",
        *(f"    {name}={value!r}," for name, value in options.items()),
        ")",
        *begun,
        f"tokens = model.generate(**begun{', tokenizer=tokenizer' if stop else ''})",
        "print(tokenizer.decode(tokens[0]))",
    ]
    after = dynamics.get("stop_after") if typed else 0
    return Snippet("\n".join(code), (STOP_AFTER.format(after),) if after else ())


def set_scheduler(pipe: Any, config: Config) -> None:
    """Give a pipeline that is exported completely the scheduler of the run's evaluation, but for a
    modular one, which is saved without its scheduler.
    """
    if is_modular(pipe):
        return
    name, options = _replacement(pipe.scheduler, config, with_shift=True)
    if options:
        pipe.scheduler = getattr(diffusers, name).from_config(pipe.scheduler.config, **options)


def _replacement(
    scheduler: Any, config: Config, *, with_shift: bool
) -> tuple[str, Mapping[str, Any]]:
    """The class of the scheduler that takes the steps of the run's evaluation, and options that it
    needs, among them a shift of the run's own if `with_shift`; without options a pipeline's own
    does, given the noise levels.
    """
    schedule, name = config["schedule"], type(scheduler).__name__
    typed = schedule.get("shift")
    if (spacing := spacing_of(schedule)) is not None:
        own = {key: schedule[key] for key in ("steps_offset",) if key in schedule}
        fixed = {"set_alpha_to_one": False, "clip_sample": False}
        return "DDIMScheduler", {"timestep_spacing": spacing, **own, **fixed}
    if name != DPM_SOLVER:
        if not with_shift or not isinstance(typed, int | float):
            return name, {}
        key = "flow_shift" if is_multistep(scheduler) else "shift"
        return name, {key: float(typed), "use_dynamic_shifting": False}
    shift = float(typed if isinstance(typed, int | float) else scheduler.config.flow_shift)
    if schedule["kind"] == "dpm" and typed != "dynamic":
        return name, {"solver_order": 1, "flow_shift": shift}
    return "FlowMatchEulerDiscreteScheduler", {"shift": shift}


def is_multistep(scheduler: Any) -> bool:
    """Whether steps of a scheduler are of a higher order unless it is set to the first."""
    return type(scheduler).__name__ == UNIPC and bool(scheduler.config.use_flow_sigmas)


def _levels(model: Any, sigmas: Tensor, name: str, changed: Config) -> list[str]:
    """The `sigmas` argument of a flow pipeline; [] if the pipeline's default gives the same.

    The scheduler, of class `name` and with these options changed, applies its shift to what it is
    given, so this inverts the shift first; its conversions leave levels as they are that it has
    converted before.
    """
    if model.process != "flow":
        return []
    scheduler, steps = {**model.pipe.scheduler.config, **changed}, len(sigmas) - 1
    dynamic = bool(scheduler.get("use_dynamic_shifting"))
    shift = model.resolution.shift_of(steps) if dynamic else own_shift(name, scheduler)
    kind = BY_PIPELINE[model.pipeline].levels if model.pipeline in BY_PIPELINE else "diffusers"
    if kind != "uniform":  # whose pipelines give the levels; others have those of their scheduler
        kind = "unipc" if name == UNIPC else "diffusers"
    own = Schedule(kind=kind)
    resolution = replace(model.resolution, shift=shift, dynamic=dynamic, step_shift=None)
    default = noise_levels(own, resolution, steps)
    if torch.allclose(sigmas.cpu(), default, rtol=0, atol=1e-5):
        return []
    even = torch.linspace(1, 1 / steps, steps)
    wanted = sigmas[:-1].cpu().double()
    given = (wanted / (shift - (shift - 1) * wanted)).float()  # before the shift
    if torch.allclose(given, even, rtol=0, atol=1e-5):
        return [f"sigmas=[1 - i / {steps} for i in range({steps})]"]
    return [f"sigmas=[{', '.join(f'{level:.7g}' for level in given.tolist())}]"]


def _keywords(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())
