"""Each family of image models at its full size, LoRA, one iteration at 512 x 512.

    python scripts/bench/full_size.py --meta                     # counts and estimates, no GPU
    python scripts/bench/full_size.py --only sd35_medium         # on any CUDA machine
    python scripts/bench/full_size.py --memory low micro_batch=1 # overrides as on the command line
    python scripts/bench/full_size.py --cpu --only sd14          # see full_size_cpu.py

Weights are random, in the published shapes, initialised on the device; text encoders are replaced
by random embeddings, and the column `text` says what they would add if they are not offloaded. An
iteration is one of the trainer: sampling, scoring by JPEG size, learning. The first one is warm-up.
Utilisation (MFU) is the FLOPs of the learning phase (matrix products and convolutions, without
recomputation) over its seconds and the device's dense bf16 peak.
"""

import argparse
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import full_size_cpu
import torch
from published import in_place_of_loading, named, pipeline
from torch.utils.flop_counter import FlopCounterMode

from rlfactory.config import nfe
from rlfactory.config.memory.devices import GIB, is_out_of_memory
from rlfactory.config.memory.model_parts import parts_of
from rlfactory.config.memory.peak_memory import Bytes, estimate, peak_of, traits_of
from rlfactory.config.options import options
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.schema.root import GROUPS
from rlfactory.model.pipelines.embedding_cache import LENGTHS
from rlfactory.model.pipelines.families import family_of
from rlfactory.prompts.edits import EditsPrompts
from rlfactory.rollout import Condition
from rlfactory.tools.fake_tensors import Counting, fake_tensors, with_fake_tensors
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import NoProgress
from rlfactory.train.trainer import Trainer
from rlfactory.utils.dotted_keys import with_values

MODELS = {
    **{"sd14": "sd14", "sdxl": "sdxl", "sd35_medium": "sd35", "flux_dev": "flux"},
    "flux_kontext": "flux_kontext",
    **{name: name for name in ("chroma", "qwen_image", "qwen_image_edit", "qwen_image_21")},
    **{"z_image": "z_image", "flux2_klein": "flux2_klein"},
    **{"flux2_dev": "flux2_dev", "flux3_klein": "flux3_klein", "sana": "sana", "wan": "wan"},
    **{"krea2": "krea2", "ernie_image": "ernie_image", "lumina2": "lumina2"},
    **{"ltx": "ltx", "wan22": "wan22", "wan_i2v": "wan_i2v"},
}
ALGORITHMS = ("grpo", "awm", "nft")
PEAKS = {
    "H100": 989e12,
    "H200": 989e12,
    "H800": 989e12,
    "GH200": 989e12,
    "B200": 2250e12,
    "A100": 312e12,
    "A800": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "A40": 150e12,
    "A10": 125e12,
    "4090": 165e12,
    "3090": 71e12,
}
"""Dense bf16 FLOPs per second, as published, by a part of the device's name."""

Changes = Mapping[str, Mapping[str, object]]


def words(name: str, algorithm: str, memory: str | None, more: Sequence[str]) -> list[str]:
    """The command line for two iterations of eight images."""
    small = ["prompts_per_iteration=2", "group_size=4", "updates_per_iteration=1", "iterations=2"]
    plain = [f"model={MODELS[name]}", f"algo={algorithm}", *small, "reward=compressibility"]
    plain.append("recipe=none")  # the same few steps and times for each algorithm
    if "precision" in GROUPS and "precision=" not in " ".join(more):
        plain.append("precision=bf16")
    if "memory" in GROUPS and memory is not None and memory in options("memory"):
        plain.append(f"memory={memory}")
    return [*plain, *more]


def configured(name: str, algorithm: str, memory: str | None, more: Sequence[str]) -> Any:
    """The configuration of a bench, in bf16."""
    config = plan_from_words(*words(name, algorithm, memory, more)).config
    if "precision" not in config:
        half = dict.fromkeys(("weights", "rollout", "learning"), "bfloat16")
        config = with_values(config, {"precision": half})
    return config


# -- without a device


@dataclass(frozen=True)
class Flops:
    """FLOPs of one item: forward only, and forward and backward."""

    forward: float
    learning: float


def adapter(name: str, changes: Changes, dtype: torch.dtype, **options: Any) -> Any:
    """The model's adapter on the meta device."""
    meta = torch.device("meta")
    pipe = pipeline(name, meta, dtype, **changes)
    with in_place_of_loading(pipe):
        family = family_of(
            type(pipe).__name__, [n for n, p in pipe.components.items() if p is not None]
        )
        return named(family.target)(meta, path=name, **options)


def a_prompt(model: Any) -> str:
    """A prompt, with a picture where the model edits pictures."""
    return EditsPrompts().held_out(1)[0].text if model.pictures else "a"


def asked(model: Any, device: str, items: int = 1) -> Any:
    """A function that predicts for uninitialised latents."""
    texts = model.encode([a_prompt(model)] * items).tensors
    condition = Condition(
        {
            k: v if k == LENGTHS else torch.empty(v.shape, dtype=v.dtype, device=device)
            for k, v in texts.items()
        }
    )
    x = torch.empty(items, *model.resolution.shape, device=device)
    t = torch.empty(items, device=device)
    return lambda: model.predict(x, t, condition)


def flops(name: str, changes: Changes | None = None, **options: Any) -> Flops:
    """FLOPs counted on the meta device, in float32, since they do not depend on the dtype."""
    model = adapter(name, changes or {}, torch.float32, **options)
    predict = asked(model, "meta")
    # a network may turn autocast off by itself, and the meta device has none
    with mock.patch.object(torch, "autocast", return_value=nullcontext()):
        with torch.no_grad(), FlopCounterMode(display=False) as forward:
            predict()
        with FlopCounterMode(display=False) as learning:
            predict().pow(2).mean().backward()
    return Flops(forward.get_total_flops(), learning.get_total_flops())


def held(name: str, again: bool, changes: Changes | None = None, **options: Any) -> int:
    """Bytes of what autograd keeps of one item in bf16, counted on fake tensors."""
    model = adapter(name, changes or {}, torch.bfloat16, **options)
    network = model.network
    if again:
        network.enable_gradient_checkpointing()
    network.train(again)
    texts = model.encode([a_prompt(model)]).tensors
    with fake_tensors() as mode:
        with_fake_tensors(network, mode)
        tensors = {
            k: v if k == LENGTHS else torch.empty(v.shape, dtype=v.dtype) for k, v in texts.items()
        }
        if model.__dict__.get("_negative"):
            model._negative = {k: v[0] for k, v in tensors.items()}
        x, t = torch.empty(1, *model.resolution.shape), torch.empty(1)

        with Counting() as live, torch.autocast("cpu", torch.bfloat16):
            loss = model.predict(x, t, Condition(tensors)).float().pow(2).mean()
            return live.now - loss.nbytes


def foreseen(config: Any) -> Bytes:
    """The plan's estimate for a GPU."""
    config = with_values(config, {"hardware.device": "cuda"})
    found = estimate(config, traits_of(config))
    assert found is not None
    return found


def networks(names: Sequence[str]) -> Iterator[list[str]]:
    """Rows of parameters, and FLOPs and activations of one item."""
    head = ["model", "parameters", "trained", "TFLOP forward", "TFLOP learning"]
    yield [*head, "activations, GiB", "with checkpointing, GiB"]
    for name in names:
        config = configured(name, "nft", None, [])
        parts = parts_of(config["model"]["path"]) or {}
        kinds = ("transformer", "transformer_2", "unet")
        count = sum(parts[k].parameters for k in kinds if k in parts)
        asked_for = ("size", "frames") if "frames" in config["model"] else ()
        video = {key: config["model"][key] for key in asked_for}
        found = flops(name, **video)
        kept = [held(name, again, **video) for again in (False, True)]
        trained = foreseen(config)["Adam's moments"] / 8  # bytes a number
        counts = [f"{count:,}", f"{trained:,.0f}"]
        tera = [f"{found.forward / 1e12:.2f}", f"{found.learning / 1e12:.2f}"]
        yield [name, *counts, *tera, *(f"{k / GIB:.2f}" for k in kept)]


def iterations(
    names: Sequence[str], algorithms: Sequence[str], more: Sequence[str]
) -> Iterator[list[str]]:
    """Rows of an iteration by the plan's estimate: forward passes per sample and peak memory."""
    head = ["model", "algorithm", "forward passes per sample", "peak, GiB", "while"]
    yield [*head, "memory=low, GiB", "while"]
    for name in names:
        for algorithm in algorithms:
            config = configured(name, algorithm, None, more)
            traits, low = traits_of(config), with_values(config, LOW)
            kinds = (nfe.nfe_sample, nfe.nfe_compare, nfe.nfe_train)
            each = " + ".join(f"{kind(config, traits) * _rows(config):g}" for kind in kinds)
            found = [foreseen(config), foreseen(low)]
            peaks = [text for e in found for text in (f"{peak_of(e) / GIB:.1f}", _phase(e))]
            yield [name, algorithm, each, *peaks]


SWITCHES = ("gradient_checkpointing", "offload_text", "offload_vae", "offload_weights")
LOW = {f"memory.{name}": True for name in (*SWITCHES, "vae_tiling", "vae_slicing")}


def _phase(found: Bytes) -> str:
    return "learning" if "learning" in found else "sampling"


def _rows(config: Any) -> int:
    """Forward passes per prediction: 2 with guidance."""
    return 2 if (config["model"].get("guidance") or 0) > 1 else 1


# -- with one


@dataclass(frozen=True)
class Measurement:
    """An iteration.

    Attributes:
        peak: bytes.
        drawn, learned, total: samples per second of sampling, of learning, of the iteration.
        flops: FLOPs per second of learning.
        first_ratio: how far the first importance ratio was from 1; 0 without one.
    """

    peak: float
    drawn: float
    learned: float
    total: float
    flops: float
    first_ratio: float


def bench(
    name: str, config: Any, device: torch.device, of_item: Flops, changes: Changes | None = None
) -> Measurement:
    """Run two iterations of the trainer and measure the second."""
    dtype = getattr(torch, config["precision"]["weights"]) if "precision" in GROUPS else None
    pipe = pipeline(name, device, dtype or torch.float32, **(changes or {}))
    with in_place_of_loading(pipe):
        parts = build(config)
    del pipe
    logged: list[Mapping[str, float]] = []

    def note(iteration: int, metrics: Mapping[str, float], rollout: Any) -> None:
        logged.append(metrics)
        if device.type == "cuda" and not iteration:
            torch.cuda.reset_peak_memory_stats(device)

    Trainer(parts, training_budget(config), NoProgress()).run(note)
    last, samples = logged[-1], config["prompts_per_iteration"] * config["group_size"]
    spent = samples * (last["nfe/compare"] * of_item.forward + last["nfe/train"] * of_item.learning)
    return Measurement(
        last["memory/peak_gb"] * GIB,
        samples / last["time/sample"],
        samples / last["time/learn"],
        samples / last["time/iteration"],
        spent / _rows(config) / last["time/learn"],
        last.get("ratio/first_max_dev", 0.0),
    )


def peak_flops(device_name: str) -> float | None:
    """The device's dense bf16 peak; None if it is not in the table."""
    found = [(len(part), peak) for part, peak in PEAKS.items() if part in device_name]
    return max(found)[1] if found else None


def row(name: str, algorithm: str, config: Any, device: torch.device, of_item: Flops) -> list[str]:
    """A row of the table of measurements."""
    best = peak_flops(torch.cuda.get_device_name(device))
    text = estimate_text(config)
    try:
        found = bench(name, config, device, of_item)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return [name, algorithm, "out of memory", *[""] * (2 + len(SPEEDS))]
    used = f"{100 * found.flops / best:.1f} %" if best else f"{found.flops / 1e12:.0f} TFLOP/s"
    speed = [f"{found.drawn:.2f}", f"{found.learned:.2f}", used]
    expected = peak_of(foreseen(config)) / GIB - text
    return [name, algorithm, f"{found.peak / GIB:.1f}", f"{expected:.1f}", f"{text:.1f}", *speed]


def estimate_text(config: Any) -> float:
    """GiB of the text encoders, which the bench does not load."""
    return foreseen(config)["text encoders"] / GIB


def measure(names: Sequence[str], a: argparse.Namespace) -> Iterator[list[str]]:
    """Every model with every algorithm, on the GPU."""
    device = torch.device("cuda")
    yield [*("model", "algorithm", "peak, GiB", "expected", "text"), *SPEEDS]
    for name in names:
        of_item = flops(name)
        for algorithm in a.algo:
            config = configured(name, algorithm, a.memory, ["hardware=gpu", *a.words])
            yield row(name, algorithm, config, device, of_item)
            torch.cuda.empty_cache()


SPEEDS = ("images/s", "samples/s", "utilisation")


def show(rows: Iterator[Sequence[str]]) -> None:
    """A table of Markdown, each line as soon as it is known."""
    for number, cells in enumerate(rows):
        print(line(cells), flush=True)
        if not number:
            print(line(["---", *(["---:"] * (len(cells) - 1))]))
    print()


def line(cells: Sequence[str]) -> str:
    """A line of it."""
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--meta", action="store_true", help="no device: count and estimate")
    parser.add_argument("--cpu", action="store_true", help="whole runs from files, on the CPU")
    parser.add_argument("--only", nargs="+", metavar="MODEL")
    parser.add_argument("--algo", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument("--memory", help="an option of the group memory, such as low")
    a = parser.parse_args()
    known = full_size_cpu.CASES if a.cpu else MODELS
    names = a.only or list(known)
    if unknown := {*names} - {*known}:
        parser.error(f"--only {' '.join(sorted(unknown))}: here are {', '.join(known)}")
    logging.getLogger("diffusers").setLevel(logging.ERROR)
    if a.meta:
        show(iterations(names, a.algo, a.words))
        show(networks(names))
    elif a.cpu:
        show(full_size_cpu.rows(names, a.words))
    elif torch.cuda.is_available():
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
        show(measure(names, a))
    else:
        raise SystemExit("torch finds no GPU; type --meta to count and to estimate")


if __name__ == "__main__":
    main()
