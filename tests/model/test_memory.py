"""Memory options do not change what a network computes."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKL
from diffusers.models.attention_dispatch import _AttentionBackendRegistry
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from rlfactory.config.overrides import compose
from rlfactory.config.plan import make_plan
from rlfactory.model.flux import Flux
from rlfactory.model.lora import Lora
from rlfactory.model.memory import Memory, OffloadedModules
from rlfactory.model.pipelines.latents import Scaled, decode_latents
from rlfactory.model.sd import SD
from rlfactory.model.sd3 import SD3
from rlfactory.model.weight_sets import EMA, REFERENCE
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import NoProgress
from rlfactory.train.trainer import Trainer
from rlfactory.utils.errors import ModelError

CPU, GPU = torch.device("cpu"), torch.device("cuda")
OFF = {
    *("gradient_checkpointing", "offload_text", "offload_vae", "offload_weights"),
    *("vae_tiling", "vae_slicing", "compile"),
}
Make = Callable[..., Any]


@pytest.fixture
def make(sd_folder: Path, sd3_folder: Path, flux_folders: dict[str, Path]) -> Make:
    """An adapter of a family on its random pipeline, under some memory."""
    kinds: dict[str, tuple[type[Any], Path]] = {
        "sd": (SD, sd_folder),
        "sd3": (SD3, sd3_folder),
        "flux": (Flux, flux_folders["dev"]),
    }

    def adapter(family: str, memory: Memory | None = None, **options: object) -> Any:
        kind, folder = kinds[family]
        return kind(CPU, 0, None, memory, path=str(folder), size=64, **options)

    return adapter


def predict(model: Any, size: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, *model.resolution.shape, generator=generator)
    prompts = ["a red circle", "two blue stars", *["a cat"] * (size - 2)]
    found: Tensor = model.predict(x, torch.linspace(0.3, 0.8, size), model.encode(prompts))
    return found


def count_calls(network: nn.Module, kind: str) -> list[str]:
    """A mark for each time that a block's forward is run, from now on."""
    seen: list[str] = []
    for block in network.modules():
        if type(block).__name__ == kind:
            block.register_forward_pre_hook(lambda *_: seen.append(kind))
    return seen


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "block"),
    [
        ("sd", "BasicTransformerBlock"),
        ("sd3", "JointTransformerBlock"),
        ("flux", "FluxSingleTransformerBlock"),
    ],
)
def test_checkpointed_blocks_are_computed_twice_where_there_is_a_gradient(
    make: Make, family: str, block: str
) -> None:
    for memory, times in ((Memory(gradient_checkpointing=True), 2), (None, 1)):
        model = make(family, memory)
        network = model.network
        seen = count_calls(network, block)
        with torch.no_grad():
            predict(model)
        once = len(seen)
        assert once > 0
        predict(model).sum().backward()
        assert len(seen) == once * (1 + times)
        assert not network.training, "so that there is no dropout"


class Part(nn.Module):
    """A part of a pipeline that notes where it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    def to(self, device: Any, non_blocking: bool = False) -> Any:
        del non_blocking
        self.sent.append(str(device))
        return self


def test_what_is_kept_away_comes_for_its_work_and_goes_back() -> None:
    parts = {"text_encoder": Part(), "text_encoder_2": Part(), "vae": Part(), "unet": Part()}
    pipe = SimpleNamespace(components={**parts, "text_encoder_3": None, "scheduler": object()})
    memory = Memory(offload_text=True, offload_vae=True)
    with memory.encoding(pipe, GPU):
        assert [part.sent for part in parts.values()] == [["cuda"], ["cuda"], [], []]
    with pytest.raises(AssertionError), memory.decoding(parts["vae"], GPU):
        assert parts["vae"].sent != ["cuda"], "it is there, and goes back after an error too"
    there_and_back = ["cuda", "cpu"]
    assert [part.sent for part in parts.values()] == [there_and_back] * 3 + [[]]


def test_a_nested_visit_moves_nothing() -> None:
    pipe, memory = SimpleNamespace(components={"text_encoder": Part()}), Memory(offload_text=True)
    with memory.encoding(pipe, GPU):
        for _ in range(3):
            with memory.encoding(pipe, GPU):
                pass
        assert pipe.components["text_encoder"].sent == ["cuda"]
    assert pipe.components["text_encoder"].sent == ["cuda", "cpu"]


def test_frozen_weights_are_not_copied_back() -> None:
    module = nn.Linear(2, 2).requires_grad_(False)
    weight = module.weight.data
    modules = OffloadedModules([module], CPU)
    for _ in range(2):
        modules.load()
        module.weight.data = weight.clone()  # as a copy on another device would be
        modules.offload()
        assert module.weight.data_ptr() == weight.data_ptr(), "the tensor that it was"


def test_weights_that_were_loaded_on_the_device_are_copied_to_the_cpu_once() -> None:
    module = nn.Linear(2, 2, device="meta").requires_grad_(False)
    modules = OffloadedModules([module], torch.device("meta"))
    modules.load()
    assert modules._kept == []


def test_what_stays_is_not_moved() -> None:
    text, vae = Part(), Part()
    with Memory().encoding(SimpleNamespace(components={"text_encoder": text}), GPU):
        pass
    with Memory().decoding(vae, GPU):
        pass
    assert text.sent == vae.sent == []


@pytest.mark.parametrize(
    ("part", "away"),
    [
        ("text_encoder", "offload_text"),
        ("text_encoder_3", "offload_text"),
        ("vae", "offload_vae"),
        ("transformer", None),
    ],
)
def test_where_a_part_is_at_home(part: str, away: str | None) -> None:
    assert Memory().idle_device(part, GPU) == GPU
    for name in ("offload_text", "offload_vae", "offload_weights"):
        at_home = Memory(**{name: True}).idle_device(part, GPU)  # type: ignore[arg-type]
        assert at_home == (CPU if name == away else GPU), name


@pytest.mark.parametrize("family", ["sd", "sd3", "flux"])
def test_text_encoders_come_for_new_prompts_and_the_autoencoder_for_pictures(
    make: Make, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(family, Memory(offload_text=True, offload_vae=True))
    moves: list[str] = []
    for name in ("text_encoder", "vae"):
        part = getattr(model.pipe, name)
        monkeypatch.setattr(part, "to", lambda *_, name=name, **__: moves.append(name))
    model.encode(["a new prompt"])
    assert moves == ["text_encoder"] * 2
    model.encode(["a new prompt"])
    assert moves == ["text_encoder"] * 2
    model.decode(torch.zeros(1, *model.resolution.shape))
    assert moves == ["text_encoder"] * 2 + ["vae"] * 2


def test_all_that_saves_memory_leaves_the_numbers_as_they_are(
    make: Make, train: Callable[[Any], None]
) -> None:
    low = Memory(**dict.fromkeys(OFF - {"compile"}, True))  # type: ignore[arg-type]
    found = []
    for memory in (None, low):
        model = make("sd3", memory, text_tokens=16, finetune="full")
        for name in (REFERENCE, EMA):
            model.weights.add(name)
        train(model)
        model.weights.update(EMA, 0.5)
        with torch.no_grad(), model.weights(EMA):
            averaged = predict(model)
        with torch.no_grad(), model.weights(REFERENCE):
            reference = predict(model)
        pictures = model.decode(torch.ones(2, *model.resolution.shape)).float()
        found.append([predict(model).detach(), averaged, reference, pictures])
    for plain, saved in zip(*(each[:3] for each in found), strict=True):
        assert torch.equal(saved, plain)
    assert not torch.equal(found[0][0], found[0][1])
    # a picture by itself is decoded by other kernels than two at once
    assert (found[1][3] - found[0][3]).abs().max() <= 1


def test_the_autoencoder_is_told(make: Make) -> None:
    vae = make("sd", Memory(vae_tiling=True, vae_slicing=True)).pipe.vae
    assert vae.use_tiling
    assert vae.use_slicing
    vae = make("sd").pipe.vae
    assert not vae.use_tiling
    assert not vae.use_slicing


@pytest.mark.parametrize(
    ("family", "kinds"),
    [
        ("sd", {"BasicTransformerBlock"}),
        ("sd3", {"JointTransformerBlock"}),
        ("flux", {"FluxTransformerBlock", "FluxSingleTransformerBlock"}),
    ],
)
def test_repeated_blocks_are_compiled_one_by_one(
    make: Make, family: str, kinds: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []

    def note(call: Any) -> Any:
        compiled.append(type(call.__self__).__name__)
        return call

    monkeypatch.setattr(torch, "compile", note)
    make(family)
    assert compiled == []
    model = make(family, Memory(compile=True))
    assert {*compiled} == kinds
    network = model.network
    assert len(compiled) == sum(type(m).__name__ in kinds for m in network.modules())


@pytest.mark.slow
def test_compiled_blocks_follow_weight_sets_and_adapters(
    make: Make, train: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # without the code that a compiler would take long to make
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    found = []
    for memory in (None, Memory(compile=True)):
        model = make("sd3", memory, text_tokens=16)
        compiled = [m for m in model.network.modules() if m._compiled_call_impl is not None]
        assert bool(compiled) is (memory is not None)
        model.weights.add(EMA)
        train(model)
        with torch.no_grad():
            predictions = [predict(model)]
            for name in (EMA, REFERENCE):
                with model.weights(name):
                    predictions.append(predict(model))
            predictions.append(predict(model))
        found.append(torch.stack(predictions))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found[0][0], found[0][1], atol=1e-3)
    assert torch.equal(found[1][0], found[1][3])
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("option", "on_cuda", "on_cpu"), [("auto", True, False), (True, True, True), (False,) * 3]
)
def test_where_adapters_are_merged(option: Any, on_cuda: bool, on_cpu: bool) -> None:
    memory = Memory(merge_adapters=option)
    assert memory.merges_adapters(GPU, torch.float32) is on_cuda
    assert memory.merges_adapters(CPU, torch.float32) is on_cpu
    in_half_precision = memory.merges_adapters(GPU, torch.bfloat16)
    assert in_half_precision is (option is True), "it would round away what adapters add"


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "merged"), [("nft", True), ("grpo", False)])
def test_adapters_are_merged_in_rollouts_that_are_not_replayed(
    algo: str, merged: bool, sd3_folder: Path
) -> None:
    words = [
        *("memory=roomy", "memory.merge_adapters=true", "precision=fp32", f"algo={algo}"),
        *("model=tiny_sd3", "model.finetune=lora", f"model.path={sd3_folder}", "model.size=64"),
        *("model.text_tokens=16", "reward=compressibility", "hardware=cpu", "iterations=1"),
        *("prompts_per_iteration=2", "group_size=2"),
    ]
    composed = compose(words)
    config: Any = make_plan(composed.values, composed.choices).config
    trainer = Trainer(build(config), training_budget(config), NoProgress())
    lora = trainer.components.model.lora  # type: ignore[union-attr]
    assert isinstance(lora, Lora)
    seen: list[bool] = []
    lora.layers[0].lora_A["default"].register_forward_hook(lambda *_: seen.append(True))
    trainer.sample(0)
    assert bool(seen) is not merged
    seen.clear()
    trainer.run(lambda *_: None)
    assert seen, "learning computes them"


@pytest.fixture
def restored_attention() -> Iterator[None]:
    """diffusers keeps the choice for the whole process."""
    before = _AttentionBackendRegistry._active_backend
    yield
    _AttentionBackendRegistry._active_backend = before


@pytest.mark.usefixtures("restored_attention")
def test_an_attention_backend_computes_the_same(make: Make) -> None:
    plain = predict(make("flux")).detach()
    model = make("flux", Memory(attention="_native_math"))
    chosen = {p._attention_backend for p in model.network.attn_processors.values()}
    assert chosen == {"_native_math"}
    torch.testing.assert_close(predict(model).detach(), plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "backend", "said"),
    [
        ("sd", "native", "UNet2DConditionModel has no backends"),
        ("sd3", "native", "SD3Transformer2DModel has no backends"),
        ("flux", "nonesuch", "must be one of"),
        ("flux", "flash_hub", "install"),
    ],
)
@pytest.mark.usefixtures("restored_attention")
def test_attention_that_can_not_be_had_is_refused(
    make: Make, family: str, backend: str, said: str
) -> None:
    with pytest.raises(ModelError, match=rf"^memory\.attention={backend}: .*{said}"):
        make(family, Memory(attention=backend))


@pytest.mark.slow
def test_all_batch_sizes_after_the_second_run_what_is_compiled(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    counter = CompileCounter()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=counter))
    # what is past the limit would run uncompiled
    monkeypatch.setattr(torch._dynamo.config, "fail_on_recompile_limit_hit", True)
    model = make("sd3", Memory(compile=True), text_tokens=16)
    model.network.transformer_blocks = model.network.transformer_blocks[-1:]  # one of them tells
    counts = []
    for size in (2, 3, 5):
        for way in (torch.inference_mode, torch.no_grad, torch.enable_grad):
            with way():
                predict(model, size)
        counts.append(counter.frame_count)
    torch._dynamo.reset()
    assert 0 < counts[0] < counts[1] == counts[2]


def test_large_images_are_decoded_in_tiles_of_at_most_512_pixels() -> None:
    def vae(size: int) -> AutoencoderKL:
        return AutoencoderKL(
            block_out_channels=(4, 4, 4, 4),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            norm_num_groups=1,
            sample_size=size,
        )

    for trained, edge in ((1024, 512), (256, 256)):
        tiled = vae(trained)
        Memory(vae_tiling=True).prepare_vae(tiled)
        assert (tiled.tile_sample_min_size, tiled.tile_latent_min_size) == (edge, edge // 8)


def test_large_images_are_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    vae = AutoencoderKL(block_out_channels=(4,), norm_num_groups=1).requires_grad_(False)
    latents = torch.randn(5, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    together = decode_latents(functools.partial(Scaled().decode, vae), latents, 1)
    sizes: list[int] = []
    decode = vae.decode
    monkeypatch.setattr(
        vae, "decode", lambda z, **options: sizes.append(len(z)) or decode(z, **options)
    )
    monkeypatch.setattr("rlfactory.model.pipelines.latents.PIXELS_TOGETHER", 2 * 16**2)
    parts = decode_latents(functools.partial(Scaled().decode, vae), latents, 1)
    assert sizes == [2, 2, 1]
    # float32 rounds differently in other batches
    assert (parts.int() - together.int()).abs().max() <= 1
