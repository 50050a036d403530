"""The sum of a plan's memory: what each choice adds and takes away, and what it is told by."""

import json
import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from rlfactory.config.memory import devices
from rlfactory.config.memory.devices import GIB, available_memory, is_out_of_memory
from rlfactory.config.memory.model_parts import count_parameters, parts_of
from rlfactory.config.memory.peak_memory import (
    REMEDIES,
    Bytes,
    describe_memory,
    estimate,
    explain_out_of_memory,
    memory_notes,
    peak_of,
    suggestions,
    traits_of,
)
from rlfactory.config.memory.phases import image_use
from rlfactory.config.overrides import compose
from rlfactory.hardware.process_environment import installed_gpus
from rlfactory.utils.dotted_keys import with_values

COMPUTED = ("weights", "rollout", "learning")
PRECISION = {"_target_": "rlfactory.model.precision.Precision"}
HALF = PRECISION | dict.fromkeys(COMPUTED, "bfloat16")
EXACT = PRECISION | dict.fromkeys(COMPUTED, "float32")
FLUX = 11_901_408_320
PLAIN = ["prompts=shapes", "reward=compressibility"]
"""Prompts without end, so that text encoders stay; a reward without a network."""


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "visible_gpus", lambda: [])


@cache
def roomy() -> Mapping[str, Any]:
    found: Mapping[str, Any] = compose(["memory=roomy"]).values["memory"]
    return found


def config(*words: str, **more: Any) -> Mapping[str, Any]:
    values = compose(["hardware.device=cuda", "recipe=none", *PLAIN, *words]).values
    return {**values, "precision": HALF, "memory": roomy(), **more}


def of(*words: str, **more: Any) -> Bytes:
    chosen = config(*words, **more)
    found = estimate(chosen, traits_of(chosen))
    assert found is not None
    return found


def test_weights_are_what_they_weigh() -> None:
    half, exact = of("model=flux"), of("model=flux", precision=EXACT)
    adapters = 32 * 2 * 3072 * (8 * 19 + 3 * 38)
    assert half["weights"] == 2 * FLUX + 4 * adapters
    assert exact["weights"] == 4 * FLUX + 4 * adapters
    assert half["gradient"] == 4 * adapters
    assert half["Adam's moments"] == 8 * adapters
    assert half["text encoders"] == 2 * (4_762_310_656 + 123_060_480)
    assert half["autoencoder"] == 4 * 83_819_683  # always float32
    assert half["the program"] == 0


def test_all_weights_are_float32_with_a_gradient_and_moments() -> None:
    full = ["model=flux", "model.finetune=full", "algo=grpo"]
    found = of(*full)
    assert found["weights"] == found["gradient"] == 4 * FLUX
    assert found["Adam's moments"] == 8 * FLUX
    assert found["weight sets"] == 4 * FLUX  # ema
    assert of(*full, optimizer={"_target_": "b.AdamW8bit"})["Adam's moments"] == 2 * FLUX
    # what `foreach` makes of the gradient
    assert of(*full, "optimizer.fused=false")["learning"] == 4 * FLUX > found["learning"]


@pytest.mark.parametrize(("algo", "sets"), [("grpo", 1), ("nft", 2)])
def test_each_weight_set_is_a_copy_of_what_is_trained(algo: str, sets: int) -> None:
    found = of("model=sd35", f"algo={algo}")
    assert found["weight sets"] == sets * found["Adam's moments"] / 2


def test_each_option_takes_off_what_it_moves() -> None:
    before = of("model=sd35")
    for name, part in (("text", "text encoders"), ("vae", "autoencoder")):
        after = of("model=sd35", memory={**roomy(), f"offload_{name}": True})
        assert after[part] == 0 < before[part]
    away = of("model=sd35", "micro_batch=1", memory={**roomy(), "offload_text": True})
    assert away["sampling"] == before["text encoders"]  # while they are there
    adapters = of("model=sd35", memory={**roomy(), "offload_weights": True})
    assert adapters["weight sets"] == before["weight sets"] > 0
    full = of("model=sd35", "model.finetune=full", memory={**roomy(), "offload_weights": True})
    assert full["weight sets"] == 0
    again = of("model=sd35", memory={**roomy(), "gradient_checkpointing": True})
    assert again.get("learning", 0) < 0.4 * before["learning"]


def test_images_are_decoded_together_or_one_by_one() -> None:
    chosen = [config("model=sd35", memory={**roomy(), "vae_slicing": on}) for on in (False, True)]
    four, one = (image_use(c, traits_of(c)).sampling for c in chosen)
    assert four - one == pytest.approx(3 * 3 * 256 * 512**2 * 4, rel=0.01)


def test_batches_guidance_and_samples_count() -> None:
    def learning(*words: str) -> float:
        chosen = config("model=sd35", *words)
        return image_use(chosen, traits_of(chosen)).learning

    one, four, eight = (learning(f"micro_batch={n}") for n in (1, 4, 8))
    assert eight - four == pytest.approx(4 / 3 * (four - one))
    assert learning("model.guidance=4.5", "micro_batch=2") == pytest.approx(four)
    # latents and the noises of four times of each sample
    more = learning("micro_batch=1", "group_size=24") - learning("micro_batch=1", "group_size=12")
    assert more == pytest.approx(12 * 8 * 5 * 16 * 64**2 * 4)


def test_what_is_written_once_in_half_is_copied_by_autocast() -> None:
    mixed = PRECISION | {"weights": "float32", "rollout": "bfloat16", "learning": "bfloat16"}
    more = of("model=flux", precision=mixed)["learning"]
    assert more - of("model=flux")["learning"] == pytest.approx(2 * FLUX)


TINY = ["model=tiny_sd3", "hardware=cpu"]


def test_a_shipped_model_is_read_from_its_headers() -> None:
    parts = parts_of("zoo:tiny_sd3")
    assert parts is not None
    assert set(parts) == {"transformer", "vae", *(f"text_encoder{n}" for n in ("", "_2", "_3"))}
    chosen = config(*TINY, "hardware.device=cpu", precision=EXACT)
    found = estimate(chosen, traits_of(chosen))
    assert found is not None
    assert found["Adam's moments"] == 8 * parts["transformer"].parameters
    assert 1 < peak_of(found) / GIB < 2  # most of it the program


def test_headers_are_counted_without_reading_weights(tmp_path: Path) -> None:
    tensors = {"a": torch.zeros(3, 4), "b": torch.zeros(5)}
    save_file(tensors, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"c": torch.zeros(7)}, tmp_path / "model-00002-of-00002.safetensors")
    assert count_parameters(tmp_path) == 24
    save_file({"c": torch.zeros(7).half()}, tmp_path / "model.fp16.safetensors")
    assert count_parameters(tmp_path) == 24  # the same again, in half
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    with pytest.raises(ValueError, match="no safetensors file"):
        count_parameters(tmp_path)


@pytest.mark.parametrize("path", ["owner/unknown", "zoo:nothing", "/no/where", "~/no"])
def test_of_what_is_not_known_nothing_is_said(path: str) -> None:
    assert parts_of(path) is None
    chosen = config("model=sd35", f"model.path='{path}'")
    assert estimate(chosen, traits_of(chosen)) is None
    assert describe_memory(chosen, None) == f"not known before {path} is loaded"
    assert [*memory_notes(chosen, traits_of(chosen), None)] == []


def test_a_broken_folder_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text("{")
    assert parts_of(str(tmp_path)) is None
    (tmp_path / "model_index.json").write_text(json.dumps({"unet": ["diffusers", "X"]}))
    assert parts_of(str(tmp_path)) == {}


def test_what_does_not_fit_is_told_with_words_to_type() -> None:
    chosen = config("model=sd35", "hardware.memory_gb=24", precision=EXACT)
    (note,) = memory_notes(chosen, traits_of(chosen), estimate(chosen, traits_of(chosen)))
    assert note.startswith("this needs about 42.6 GiB and the device has 24")
    assert "precision=bf16 (saves" in note
    roomy = with_values(chosen, {"hardware.memory_gb": 80})
    assert not [*memory_notes(roomy, traits_of(roomy), estimate(roomy, traits_of(roomy)))]
    assert describe_memory(roomy, estimate(roomy, traits_of(roomy))).endswith("; the device has 80")


def test_remedies_save_what_they_say() -> None:
    chosen = config("model=sd35", precision=EXACT)
    traits = traits_of(chosen)
    words = suggestions(chosen, traits)
    assert len(words) == 3
    saved = [float(word.rpartition(" ")[2].rstrip(")")) for word in words]
    assert saved == sorted(saved, reverse=True)
    before, first = estimate(chosen, traits), REMEDIES[words[0].partition(" ")[0]]
    after = estimate(with_values(chosen, first), traits)
    assert before is not None
    assert after is not None
    assert saved[0] == pytest.approx((peak_of(before) - peak_of(after)) / GIB, abs=0.05)


def words_of(chosen: Mapping[str, Any]) -> list[str]:
    return [word.partition(" ")[0] for word in suggestions(chosen, traits_of(chosen))]


def test_only_words_that_help_are_offered() -> None:
    one = config("model=sd35", "micro_batch=1", "sample_batch=1", precision=EXACT)
    assert words_of(one)[0] == "precision=bf16"
    assert not any("batch" in word for word in words_of(one))
    full = config("model=flux", "model.finetune=full")
    assert {"model.finetune=lora", "optimizer=adamw_8bit"} <= {*words_of(full)}
    assert not {"precision=bf16", "model.finetune=lora"} & {*words_of(config("model=sd35"))}


class FromDriver(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"), True),
        (MemoryError(), True),
        (FromDriver("CUDA error: out of memory"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("DefaultCPUAllocator: can't allocate memory"), False),
    ],
    ids=str,
)
def test_exhaustion_is_known_by_what_it_says(error: Exception, is_one: bool) -> None:
    assert is_out_of_memory(error) is is_one
    outer = ValueError("x")
    outer.__cause__ = error
    assert is_out_of_memory(outer) is is_one


def test_exhaustion_is_told_with_the_estimate_and_what_helps() -> None:
    chosen = config("model=sd35", precision=EXACT)
    message = explain_out_of_memory(
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), chosen
    )
    assert "out of memory; the plan expected about 42." in message
    assert "precision=bf16 (saves" in message
    assert message.endswith("\nCUDA out of memory")
    texts = dict(compose(["model=tiny_gpt2"]).values)
    message = explain_out_of_memory(MemoryError(), texts)
    assert message.startswith("out of memory; the plan expected about ")
    assert "What helps most, in this order: micro_batch=" in message
    other = with_values(texts, {"model.path": "owner/unknown"})
    assert explain_out_of_memory(MemoryError(), other).startswith(
        "out of memory. What helps most, in this order: precision=bf16, "
    )


def test_memory_is_asked_of_the_tool_that_knows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    installed_gpus.cache_clear()
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 0, GPU-a, 81559\necho 1, GPU-b, 40960\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    try:
        assert available_memory({"hardware": {"device": "auto"}}) == (40960 * 2**20, "the GPU")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        assert available_memory({"hardware": {"device": "auto"}}) == (81559 * 2**20, "the GPU")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
        assert available_memory({"hardware": {"device": "auto"}}) == (None, "the GPU")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert available_memory({"hardware": {"device": "auto"}})[1] == "this machine"
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        assert available_memory({"hardware": {"device": "cpu"}})[1] == "this machine"
        given = {"hardware": {"device": "auto", "memory_gb": 8}}
        assert available_memory(given) == (8 * GIB, "the device")
        tool.write_text("#!/bin/sh\nexit 9\n")
        installed_gpus.cache_clear()
        assert not devices.on_gpu({"hardware": {"device": "auto"}})
        assert available_memory({"hardware": {"device": "cuda"}}) == (None, "the GPU")
    finally:
        installed_gpus.cache_clear()
    assert (devices._physical_memory() or 0) > GIB
