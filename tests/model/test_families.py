"""Every family of image models against its own pipeline: a random one of the same classes, tiny.

A new family has a case here (docs/extend/model.md).
"""

import importlib
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from diffusers import ClassifierFreeGuidance
from tiny_pipelines import with_pictures
from torch import Tensor

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.grpo import GRPO
from rlfactory.config.named_models import begun_keys
from rlfactory.dynamics.ddim import DDIM
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.schedule import Leading, Schedule
from rlfactory.model.image_base import PipelineModel
from rlfactory.model.memory import Memory
from rlfactory.model.pipelines.families import BY_PIPELINE, FAMILIES, Family
from rlfactory.model.pipelines.modular import is_modular, load_modular
from rlfactory.model.pipelines.noise_levels import noise_levels
from rlfactory.prompts.ops.pictured import PicturedText
from rlfactory.rollout import Rollout
from rlfactory.tools.export.snippet import Source, image_snippet
from rlfactory.train.sampling.trajectories import integrate_ode

PROMPTS = ["a red circle", "two blue stars above a green square and a star", "a red circle"]
SIZE, STEPS = 64, 4
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Case:
    """A family's tiny pipeline.

    Attributes:
        fixture: gives the pipeline's folder.
        options: for the adapter.
        unused: how names of tensors begin that the prediction does not depend on.
        negative: the one negative prompt that the family has; None: any.
        guidance: the option that is its guidance; None: it has none.
        option: that of `model`, of a family whose pipeline is another one's too.
        within: how near our samples are to the pipeline's, relative to their norm.
    """

    pipeline: str
    fixture: Callable[[Any], Path]
    options: Mapping[str, object] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    negative: str | None = None
    guidance: str | None = "guidance"
    option: str | None = None
    within: float = 1e-6

    def guided(self, scale: float) -> dict[str, float]:
        """The option that sets guidance, if the family has any."""
        return {} if self.guidance is None else {self.guidance: scale}

    @property
    def family(self) -> Family:
        own = [family for family in FAMILIES if family.option == self.option]
        return own[0] if own else BY_PIPELINE[self.pipeline]

    @property
    def schedule(self) -> Any:
        """The noise levels of the pipeline itself."""
        if self.family.network == "unet":
            return Leading(steps=STEPS)
        return Schedule(kind=self.family.levels, steps=STEPS)

    def open(self, folder: Path, **options: object) -> PipelineModel:
        module, _, name = self.family.target.rpartition(".")
        known = {"path": str(folder), "size": SIZE, "lora_rank": 4, "lora_alpha": 8.0}
        adapter = getattr(importlib.import_module(module), name)
        model: PipelineModel = adapter(CPU, **(known | dict(self.options) | options))
        return model

    def levels(self, model: PipelineModel) -> Tensor:
        return noise_levels(self.schedule, model.resolution)


def of(name: str) -> Callable[[Any], Path]:
    def folder(request: pytest.FixtureRequest) -> Path:
        found = request.getfixturevalue(name)
        return Path(found["dev"] if isinstance(found, Mapping) else found)

    return folder


def schnell(request: pytest.FixtureRequest) -> Path:
    return Path(request.getfixturevalue("flux_folders")["schnell"])


TEXT: dict[str, object] = {"text_tokens": 16}
VIDEO: dict[str, object] = {"text_tokens": 128, "size": [32, 48], "frames": 5}
OF_PICTURES = tuple(
    f"{name}.image_cond"
    for name in (
        *("mode_blocks", "x_embedders"),
        *("early_stream_modulations", "single_stream_modulations"),
    )
)
"""Of FLUX.3's tokens of reference images."""
CASES = (
    Case("StableDiffusionPipeline", of("sd_folder")),
    Case("StableDiffusionPipeline", of("sd_v_folder")),
    Case("StableDiffusionXLPipeline", of("sdxl_folder")),
    Case(
        "StableDiffusion3Pipeline",
        of("sd3_folder"),
        TEXT,
        # the last block's text is not read
        unused=("transformer_blocks.3.attn.add_q_proj", "transformer_blocks.3.attn.norm_added_q"),
        # 1.9e-6: its scheduler computes noise levels in float64, of which ours differ by 6e-8; at
        # the scheduler's own levels 7e-7
        within=3e-6,
    ),
    Case("FluxPipeline", of("flux_folders"), TEXT),
    Case("FluxPipeline", schnell, TEXT | {"embedded_guidance": None}),
    Case("FluxKontextPipeline", of("flux_kontext_folder"), TEXT),
    Case("ChromaPipeline", of("chroma_folder"), TEXT),
    Case(
        "QwenImagePipeline",
        of("qwen_image_folder"),
        {"text_tokens": 256},  # of bytes; the template's come first
        unused=tuple(
            f"transformer_blocks.1.{name}"
            for name in ("attn.add_q_proj", "attn.norm_added_q", "attn.to_add_out", "txt_mlp")
        ),
    ),
    Case(
        "QwenImageEditPlusPipeline",
        of("qwen_image_edit_folder"),
        {"text_tokens": 384},
        unused=tuple(
            f"transformer_blocks.1.{name}"
            for name in ("attn.add_q_proj", "attn.norm_added_q", "attn.to_add_out", "txt_mlp")
        ),
    ),
    Case("QwenImage21Pipeline", of("qwen_image_21_folder"), {"text_tokens": 128}),
    Case(
        "ZImagePipeline",
        of("z_image_folder"),
        {"text_tokens": 128},
    ),
    Case(
        "Flux2KleinPipeline",
        of("flux2_folder"),
        {"text_tokens": 128},
        negative="",
    ),
    Case(
        "Flux2Pipeline",
        of("flux2_dev_folder"),
        {"text_tokens": 1024},  # of bytes; the system message comes first
        negative="",
        guidance="embedded_guidance",
    ),
    Case("Flux3ModularPipeline", of("flux3_folder"), unused=OF_PICTURES),
    Case(
        "Flux3DistilledModularPipeline",
        of("flux3_distilled_folder"),
        {"map_steps": STEPS},
        unused=OF_PICTURES,
        guidance=None,
        negative="",
    ),
    Case(
        "SanaPipeline",
        of("sana_folder"),
        {"text_tokens": 64, "timesteps": "truncated"},  # as its scheduler does
    ),
    Case("Krea2Pipeline", of("krea2_folder"), {"text_tokens": 256}),  # of bytes, as Qwen-Image's
    Case("ErnieImagePipeline", of("ernie_image_folder"), {"text_tokens": 64}),
    Case("Lumina2Pipeline", of("lumina2_folder"), {"text_tokens": 256}),
    Case("LTXPipeline", of("ltx_folder"), VIDEO | {"size": [32, 64]}),
    Case("WanPipeline", of("wan_folder"), VIDEO),
    Case("WanPipeline", of("wan22_folder"), VIDEO | {"guidance_low": 2.5}, option="wan22"),
    Case("WanImageToVideoPipeline", of("wan_i2v_folder"), VIDEO),
    Case("WanImageToVideoPipeline", of("wan21_i2v_folder"), VIDEO | {"text_tokens": 512}),
)


OFTEN = ("sd14", "sd35", "flux")
"""Families that the fast suite tests; the rest are slow."""


@pytest.fixture(
    params=[
        pytest.param(each, marks=() if each.family.option in OFTEN else pytest.mark.slow)
        for each in CASES
    ],
    ids=[each.family.option for each in CASES],
)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def folder(case: Case, request: pytest.FixtureRequest) -> Path:
    return case.fixture(request)


def start(model: PipelineModel) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(len(PROMPTS), *model.resolution.shape, generator=generator)


def packed(pipe: Any, x: Tensor) -> Tensor:
    """Latents as the pipeline takes them."""
    if hasattr(pipe, "_prepare_latent_ids"):
        return x  # it packs them itself
    if x.ndim == 5:  # of a video
        return pipe._pack_latents(x) if hasattr(pipe, "_pack_latents") else x
    return pipe._pack_latents(x, *x.shape) if hasattr(pipe, "_pack_latents") else x


def unpacked(pipe: Any, x: Tensor, shape: Sequence[int]) -> Tensor:
    if hasattr(pipe, "_prepare_latent_ids") and x.ndim == 3:  # tokens
        return x.transpose(1, 2).unflatten(2, (math.isqrt(x.shape[1]), -1))
    if hasattr(pipe, "_prepare_latent_ids"):  # they are ready for the autoencoder
        bn = pipe.vae.bn
        mean, std = bn.running_mean, (bn.running_var + pipe.vae.config.batch_norm_eps).sqrt()
        return (pipe._patchify_latents(x) - mean.view(1, -1, 1, 1)) / std.view(1, -1, 1, 1)
    if not hasattr(pipe, "_unpack_latents"):
        return x
    known = inspect.signature(pipe._unpack_latents).parameters
    if "num_frames" in known:
        return pipe._unpack_latents(x, *shape[1:])
    factor = [pipe.vae_scale_factor] * ("vae_scale_factor" in known)
    found: Tensor = pipe._unpack_latents(x, SIZE, SIZE, *factor)
    return found[:, :, 0] if found.ndim == 5 else found


def take_first_order_steps(pipe: Any) -> None:
    """Steps of a multistep scheduler, at its own noise levels, are of first order from now on."""
    scheduler = pipe.scheduler
    if hasattr(scheduler.config, "solver_order"):
        changes = {"solver_order": 1, "disable_corrector": [*range(STEPS)]}
        pipe.scheduler = type(scheduler).from_config(scheduler.config, **changes)


ALONE = ("QwenImageEditPlusPipeline", "QwenImage21Pipeline", "WanImageToVideoPipeline")
"""Pipelines that are called with one prompt: they take no others, or a sample depends on them."""


@torch.no_grad()
def drawn(model: PipelineModel, pipe: Any, output: str = "latent") -> Any:
    """What a pipeline draws, called as the adapter says."""
    if is_modular(pipe):
        return drawn_by_blocks(model, pipe, output)
    together = 1 if model.pipeline in ALONE else len(PROMPTS)
    rows = [slice(first, first + together) for first in range(0, len(PROMPTS), together)]
    parts = [called(model, pipe, of, output) for of in rows]
    return torch.cat(parts) if output == "latent" else np.concatenate(parts)


def called(model: PipelineModel, pipe: Any, rows: slice, output: str) -> Any:
    """What a pipeline draws of some prompts."""
    take_first_order_steps(pipe)
    height, width = model.edges
    arguments = model.pipeline_arguments()
    take_first_order_steps(pipe)
    prompts = PROMPTS[rows]
    if "negative_prompt" in arguments:
        arguments["negative_prompt"] = [arguments["negative_prompt"]] * len(prompts)
    if model.pictures:
        arguments["image"] = [prompt.open() for prompt in with_pictures(model, PROMPTS)[rows]]
        if model.media == "videos":  # not a list of one
            (arguments["image"],) = arguments["image"]
    names = {"picture": arguments["image"][0]} if model.media == "images" and model.pictures else {}
    exec("\n".join(model.pipeline_settings()), names)
    found = pipe(
        prompt=prompts,
        num_inference_steps=STEPS,
        latents=packed(pipe, start(model)[rows]),
        height=height,
        width=width,
        output_type=output,
        **arguments,
    )
    samples = found.frames if model.media == "videos" else found.images
    return unpacked(pipe, samples, model.resolution.shape) if output == "latent" else samples


def on_white(pixels: Tensor) -> Tensor:
    """Pixels in [0, 1], `[..., C, H, W]`, without their alpha channel."""
    if pixels.shape[-3] == 3:
        return pixels
    colours, alpha = pixels[..., :3, :, :], pixels[..., 3:, :, :]
    return colours * alpha + 1 - alpha


def drawn_by_blocks(model: PipelineModel, pipe: Any, output: str) -> Any:
    """What a modular pipeline draws, which takes one prompt, and guidance as a component."""
    height, width = model.edges
    arguments = model.pipeline_arguments()
    if (scale := arguments.pop("guidance_scale", None)) is not None:
        pipe.update_components(guider=ClassifierFreeGuidance(guidance_scale=scale))
    found = [
        pipe(
            prompt=prompt,
            num_inference_steps=STEPS,
            latents=x[None],
            height=height,
            width=width,
            output_type="pt" if output == "latent" else output,
            output="latents" if output == "latent" else "images",
            **arguments,
        )
        for prompt, x in zip(PROMPTS, start(model), strict=True)
    ]
    return torch.cat(found) if output == "latent" else np.concatenate(found)


def loaded(kind: Any, folder: Path) -> Any:
    """A pipeline in float32, as its library loads it."""
    if is_modular(kind):
        return load_modular(kind, folder, {}, {})
    return kind.from_pretrained(folder, dtype={"default": torch.float32})


@torch.no_grad()
def ours(case: Case, model: PipelineModel) -> Tensor:
    prompts = with_pictures(model, PROMPTS)
    return integrate_ode(model, model.encode(prompts), start(model), case.levels(model))


def assert_near(found: Tensor, expected: Tensor, within: float = 1e-6) -> None:
    assert found.shape == expected.shape
    error = (found.double() - expected.double()).norm() / expected.double().norm()
    assert error < within


def test_every_family_has_a_case() -> None:
    assert [*dict.fromkeys(case.family.option for case in CASES)] == [f.option for f in FAMILIES]


def test_it_draws_and_shows_what_its_own_pipeline_does(case: Case, folder: Path) -> None:
    # with an empty one the printed code is compared below
    words = {} if case.negative is not None else {"negative_prompt": "stars"}
    found = []
    for guidance in (1.0,) if case.guidance is None else (1.0, 4.0):
        model = case.open(folder, **case.guided(guidance), **words)
        found.append(drawn(model, model.pipe))
        assert_near(ours(case, model), found[-1], case.within)
        if guidance == 1:
            shown = on_white(torch.from_numpy(drawn(model, model.pipe, "np")).movedim(-1, -3))
            pixels = model.decode(found[0])
            assert pixels.shape == shown.shape
            assert pixels.shape[-2:] == model.edges
            assert (pixels - (255 * shown).round()).abs().max() <= 1
    assert case.guidance is None or (found[1] - found[0]).norm() > 1e-3 * found[0].norm()


def test_the_printed_code_shows_what_an_evaluation_shows(
    case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = case.open(folder, **case.guided(3.0))
    sigmas, size = case.levels(model), case.options.get("size", SIZE)
    config = {
        "model": {"size": size, "timesteps": "exact"},
        "evaluation": {"size": None},
        "schedule": vars(case.schedule) | {"kind": case.family.levels, "shift": None},
    }
    code = image_snippet(model, config, sigmas, Source(str(folder)), prompt="a red circle").code
    noises: list[Tensor] = []

    def drawn(shape: Any, **_: Any) -> Tensor:
        noises.append(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
        return noises[-1].clone()

    name = type(model.pipe).__module__
    name = re.sub(r"\.modular_pipeline$", ".before_denoise", name)
    module = importlib.import_module(name)
    monkeypatch.setattr(module, "randn_tensor", drawn)
    names: dict[str, Any] = {}
    exec(code, names)
    prompt = "a red circle"
    if model.pictures:
        assert "Image.open(PATH)" in code
        names["picture"].save(folder / "picture.png")
        prompt = PicturedText(prompt, str(folder / "picture.png"))
    with torch.no_grad():
        start = noises[0].reshape(1, *model.resolution.shape)
        own = model.decode(integrate_ode(model, model.encode([prompt]), start, sigmas))[0]
    shown = names["frames"] if model.media == "videos" else names["image"]
    if not isinstance(shown, np.ndarray):  # pictures, of a video a list of them
        shown = np.array(shown) / 255
    pixels = 255 * on_white(torch.from_numpy(shown).movedim(-1, -3))
    assert (pixels - own).abs().max() <= 2


def test_its_decoder_gets_what_its_encoder_gave(
    case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = case.open(folder)
    vae, seen = model.pipe.vae, dict[str, Tensor]()
    encode, decode = vae.encode, vae.decode

    def encoded(pixels: Tensor, *args: Any, **options: Any) -> Any:
        found = encode(pixels, *args, **options)
        own = found.latent if hasattr(found, "latent") else found.latent_dist.mode()
        seen.update(given=own, pixels=pixels)
        return found

    def decoded(latents: Tensor, *args: Any, **options: Any) -> Any:
        seen["read"] = latents
        return decode(latents, *args, **options)

    monkeypatch.setattr(vae, "encode", encoded)
    monkeypatch.setattr(vae, "decode", decoded)
    images = model.decode(start(model)[:1])
    seen.clear()
    latents = model.encode_images(images)
    assert latents.shape[1:] == model.resolution.shape
    assert (seen["pixels"].min(), seen["pixels"].max()) >= (-1, -1)
    model.decode(latents)
    assert_near(seen["read"], seen["given"])


@pytest.mark.parametrize("finetune", ["lora", pytest.param("full", marks=pytest.mark.whole)])
def test_at_the_first_update_every_ratio_is_one(
    case: Case,
    folder: Path,
    finetune: str,
    roll: Callable[..., Rollout],
    train: Callable[[PipelineModel], None],
) -> None:
    model = case.open(folder, finetune=finetune, **case.guided(3.0))
    if finetune == "lora":
        train(model)
    dynamics = FlowSDE(noise_level=0.7) if model.process == "flow" else DDIM(model.forward_process)
    algo = GRPO(dynamics, GroupAdvantage())
    rollout = roll(model, [1.0, -1.0, 0.5, -0.5, 2.0], dynamics)
    for chunk in algo.training_items(rollout, model, seed=0, iteration=0).split(4):
        loss = algo.loss(model, chunk)
        assert loss.metrics["ratio/max_dev"].max() < 1e-6
        loss.value.backward()
    grads = [p.grad for p in model.weights.parameters.values() if p.grad is not None]
    assert any((grad != 0).any() for grad in grads)


@pytest.mark.parametrize("finetune", ["lora", "full"])
def test_gradient_reaches_all_that_is_trained(
    case: Case,
    folder: Path,
    finetune: str,
    train: Callable[[PipelineModel], None],
    without_gradient: Callable[[PipelineModel], list[str]],
) -> None:
    model = case.open(folder, finetune=finetune)
    train(model)
    assert [n for n in without_gradient(model) if not n.startswith(case.unused)] == []


def test_all_linear_layers_of_a_family_are_adapted(
    case: Case, folder: Path, train: Callable[[PipelineModel], None], tmp_path: Path
) -> None:
    model = case.open(folder, lora_targets="all-linear")
    train(model)
    assert model.lora is not None
    layers = {type(layer.get_base_layer()) for layer in model.lora.layers}
    assert torch.nn.Linear in layers
    x, t = start(model), torch.tensor([0.2, 0.5, 0.9])
    condition = model.encode(with_pictures(model, PROMPTS))
    with torch.no_grad():
        own = model.predict(x, t, condition)
        with model.lora.merged():
            torch.testing.assert_close(model.predict(x, t, condition), own, rtol=1e-3, atol=1e-3)
    model.export(tmp_path)
    begun = begun_keys(str(tmp_path), str(folder))
    continued = case.open(folder, lora_targets=begun["lora_targets"])
    assert continued.weights.parameters.keys() == model.weights.parameters.keys()


def test_checkpointing_changes_no_bit(case: Case, folder: Path) -> None:
    found = []
    for checkpointing in (False, True):
        model = case.open(
            folder, finetune="full", memory=Memory(gradient_checkpointing=checkpointing)
        )
        x, t = start(model), torch.tensor([0.2, 0.5, 0.9])
        prediction = model.predict(x, t, model.encode(with_pictures(model, PROMPTS)))
        prediction.square().mean().backward()
        grads = {name: p.grad for name, p in model.weights.parameters.items()}
        found.append((prediction.detach(), grads))
    (plain, of_plain), (again, of_again) = found
    assert torch.equal(plain, again)
    for name, grad in of_plain.items():
        assert (grad is None) == (of_again[name] is None)
        assert grad is None or torch.equal(grad, of_again[name]), name


@pytest.mark.slow
def test_exported_adapters_open_in_its_pipeline_and_in_peft(
    case: Case, folder: Path, train: Callable[[PipelineModel], None], tmp_path: Path
) -> None:
    from peft import PeftModel

    model = case.open(folder)
    before = drawn(model, model.pipe)
    train(model)
    expected = drawn(model, model.pipe)
    assert (expected - before).norm() > 1e-3 * expected.norm()
    model.export(tmp_path)
    kind = getattr(diffusers, case.pipeline)
    pipe = loaded(kind, folder)
    pipe.set_progress_bar_config(disable=True)
    pipe.load_lora_weights(tmp_path)
    for part in model.trained_parts[1:]:  # diffusers loads those of the first alone
        if part in model.trained_networks:
            getattr(pipe, part).load_lora_adapter(tmp_path, prefix=part, use_safetensors=True)
    assert_near(drawn(model, pipe), expected)
    pipe.unload_lora_weights()
    for part in model.trained_networks:
        own = tmp_path / part if len(model.trained_networks) > 1 else tmp_path
        adapted = PeftModel.from_pretrained(getattr(pipe, part), own).base_model.model
        setattr(pipe, part, adapted)
    assert_near(drawn(model, pipe), expected)


def test_an_exported_network_opens_elsewhere(
    case: Case, folder: Path, train: Callable[[PipelineModel], None], tmp_path: Path
) -> None:
    model = case.open(folder, finetune="full")
    train(model)
    model.export(tmp_path)
    saved = {}
    for part in model.trained_networks:
        prefix = f"{part}." if len(model.trained_networks) > 1 else ""
        kind = type(getattr(model.pipe, part))
        state = kind.from_pretrained(tmp_path / part).state_dict()
        saved |= {f"{prefix}{name}": tensor for name, tensor in state.items()}
    assert all(torch.equal(saved[name], p) for name, p in model.weights.parameters.items())
