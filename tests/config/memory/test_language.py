"""The estimate of runs on texts, and what the plan must let fit."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlfactory.config.memory.devices import GIB
from rlfactory.config.memory.peak_memory import Bytes, estimate, peak_of, traits_of
from rlfactory.config.memory.phases import Use, text_use
from rlfactory.config.overrides import compose
from rlfactory.utils.dotted_keys import with_values

QWEN = 8_190_423_040  # matrices alone
GPU = ["model=gpt2", "hardware.gpu=h100", "reward=length"]
EIGHT_B = [*GPU, "model.path=Qwen/Qwen3-8B", "model.finetune=lora", "dynamics.length=4096"]
LOW = {f"memory.{name}": True for name in ("gradient_checkpointing", "offload_weights")}
HALF = {f"precision.{when}": "bfloat16" for when in ("weights", "rollout", "learning")}


def config(*words: str, **changes: Any) -> Mapping[str, Any]:
    return with_values(compose([*words]).values, changes)


def of(*words: str, **changes: Any) -> Bytes:
    chosen = config(*words, **changes)
    found = estimate(chosen, traits_of(chosen))
    assert found is not None
    return found


def use_of(*words: str, **changes: Any) -> Use:
    chosen = config(*words, **changes)
    return text_use(chosen, traits_of(chosen))


def test_qwen_of_8_b_learns_from_4096_tokens_on_one_gpu() -> None:
    found = of(*EIGHT_B, "sample_batch=32", "micro_batch=1", **HALF, **LOW)
    assert found["weights"] == pytest.approx(2 * QWEN, rel=0.01)
    assert peak_of(found) / GIB < 0.94 * 80


def test_what_was_counted_at_full_size_is_expected() -> None:
    """Qwen3-8B on fake CUDA tensors: LoRA in float32, a response of 1,024 tokens after 512."""
    prompts = ["prompts=file", "prompts.path=x.txt"]
    found = of(*EIGHT_B, "dynamics.length=1024", "micro_batch=1", "sample_batch=1", *prompts)
    assert found["weights"] / GIB == pytest.approx(30.7, rel=0.02)
    assert found["learning"] / GIB == pytest.approx(22.4, rel=0.15)


def test_all_weights_of_8_b_do_not_fit_one_gpu() -> None:
    full = [*EIGHT_B[:-2], "model.finetune=full", "micro_batch=1"]
    found = of(*full)
    kept = peak_of(found) - found["learning"]
    assert kept / QWEN == pytest.approx(24, rel=0.01)  # weights, gradient, Adam, ema, reference
    without = of(*full, "evaluation.weights=policy")
    assert without["weight sets"] == pytest.approx(4 * QWEN, rel=0.01)  # the reference


def test_checkpointing_keeps_inputs_and_one_layer() -> None:
    plain, again = (
        use_of(*EIGHT_B, "micro_batch=1", **HALF, **{"memory.gradient_checkpointing": on})
        for on in (False, True)
    )
    assert again.learning < 0.25 * plain.learning
    assert again.sampling == plain.sampling


def test_the_cache_follows_rows_and_length() -> None:
    eight, sixteen = (use_of(*EIGHT_B, f"sample_batch={n}").sampling for n in (8, 16))
    row = 4.0 * 2 * 36 * 1024 * (4096 + 12) + 4.0 * 4 * 151936
    assert sixteen - eight == pytest.approx(8 * row, rel=1e-3)
    assert use_of(*EIGHT_B, "sample_batch=8", **HALF).sampling < 0.6 * eight


def test_logits_are_held_by_the_chunk() -> None:
    """From 2**28 of them on, a quarter of that at once: a longer response has no more."""
    few, more = (
        use_of(*EIGHT_B, f"dynamics.length={length}", "micro_batch=1").learning
        for length in (2**28 // 151936, 2**28 // 151936 + 1)
    )
    assert few - more == pytest.approx(4 * 8 * 3 * 2**28 // 4, rel=0.01)


def test_batches_of_a_process_are_no_larger_than_its_share() -> None:
    eight = ["hardware=ddp", "hardware.processes=8", "prompts_per_iteration=16", "group_size=1"]
    two, many = (of(*GPU, *eight, f"micro_batch={n}", "sample_batch=2") for n in (2, 32))
    assert two == many


def test_prompts_of_a_file_are_as_long_as_they_are(tmp_path: Path) -> None:
    """The longest counts, of three letters a token, with a template around it."""

    def rows(letters: int, *words: str) -> float:
        file = tmp_path / "asked.jsonl"
        lines = [{"question": "a"}, {"question": "a" * letters}]
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        data = ("prompts=file", f"prompts.path={file}", "prompts.column=question")
        return use_of(*EIGHT_B, *data, "micro_batch=1", *words).learning

    short, longer, longest = (rows(letters) for letters in (30, 300, 3000))
    assert longest - longer == pytest.approx(10 * (longer - short), rel=0.01)
    assert rows(3000, "model.max_prompt_length=101") == pytest.approx(rows(156))


@pytest.mark.parametrize(
    "words",
    [
        ["model=flux", "algo=nft", "model.finetune=full"],
        ["experiment=peer/dance"],
        ["experiment=peer/mix"],
    ],
    ids=str,
)
def test_all_of_flux_fits_eight_gpus(words: list[str]) -> None:
    eight = ["hardware=fsdp2", "hardware.processes=8", "hardware.gpu=h100"]
    assert peak_of(of(*words, *eight, "reward=hps")) / GIB < 0.94 * 80
