"""Predicted against measured seconds: of tiny models on this CPU, and of published runs on GPUs.

    python scripts/bench/predict.py                     # calibrate, predict and measure: minutes
    python scripts/bench/predict.py --published         # write the table in docs/prediction.md
    python scripts/bench/predict.py --keep speeds.json  # calibrate once

The plan's predictor counts FLOPs, bytes and launches from a configuration, and needs a device's
speeds. `calibrate` measures those of one thread of this CPU in about half a minute: matrix
products, convolutions, elementwise operators, and the host's time for a small operator. Then each
setting's iteration is predicted and measured. All seconds are CPU seconds of this process, user and
system, with one thread, since other work on the machine disturbs wall time.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
import yaml
from torch import Tensor, nn
from torch.nn import functional as F

import rlfactory.train.trainer
from rlfactory.config.memory.suggestions import traits_of
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.prediction.devices import gpu_of
from rlfactory.config.prediction.phases import iteration_work
from rlfactory.config.prediction.prediction import Prediction, predict
from rlfactory.config.prediction.work import Speeds
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import Metrics, NoProgress
from rlfactory.train.trainer import Trainer

PAGE = Path(__file__).parents[2] / "docs" / "prediction.md"
RUNS_FILE = Path(__file__).with_name("published_runs.yaml")
BEGIN, END = "<!-- published runs -->", "<!-- end of published runs -->"
SETTINGS = {
    "SD3, nft": "model=tiny_sd3 algo=nft",
    "SD3, grpo": "model=tiny_sd3 algo=grpo",
    "SD3, awm": "model=tiny_sd3 algo=awm",
    "SD3, vgrpo": "model=tiny_sd3 algo=vgrpo",
    "FLUX, nft": "model=tiny_flux algo=nft",
    "SD1, ddpo": "model=tiny_sd algo=ddpo",
    "GPT-2, ppo": "model=tiny_gpt2 algo=ppo",
}


def cpu_seconds() -> float:
    """User and system seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(call: Callable[[], Any], budget: float = 1.0) -> float:
    """CPU seconds of a call: the median over as many as take about `budget` seconds."""
    call()
    found = list[float]()
    end = time.process_time() + budget
    while time.process_time() < end or len(found) < 3:
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return median(found)


# -- the speeds of this CPU


def matmul_rate() -> float:
    """FLOP/s of linear layers as wide as the tiny models', forward and backward."""
    flops = seconds = 0.0
    for rows, inner, outer in (
        (7680, 128, 128),
        (7680, 128, 512),
        (7680, 512, 128),
        (4096, 256, 1024),
    ):
        layer, x = nn.Linear(inner, outer), torch.randn(rows, inner, requires_grad=True)
        gradient = torch.randn(rows, outer)

        def both(layer: nn.Module = layer, x: Tensor = x, g: Tensor = gradient) -> None:
            layer(x).backward(g)

        seconds += timed(both, 0.6)
        flops += 3 * 2.0 * rows * inner * outer
    return flops / seconds


def convolution_rate() -> float:
    """FLOP/s of 3 x 3 convolutions as an autoencoder's decoder has them."""
    flops = seconds = 0.0
    with torch.no_grad():
        for channels, edge, images in ((64, 16, 48), (64, 32, 48), (16, 64, 48)):
            layer = nn.Conv2d(channels, channels, 3, padding=1)
            x = torch.randn(images, channels, edge, edge)
            seconds += timed(lambda layer=layer, x=x: layer(x), 0.6)
            flops += 18.0 * images * edge**2 * channels**2
    return flops / seconds


def elementwise_rate() -> float:
    """Bytes/s of the operators between matrix products: norms, activations, sums, products."""
    x = torch.randn(96, 80, 128)
    y = torch.randn_like(x)
    wide = torch.randn(96, 80, 512)
    scale = torch.ones(128)
    size = 4.0 * x.numel()
    calls: list[tuple[float, Callable[[], Tensor]]] = [
        (2 * size, lambda: F.layer_norm(x, (128,), scale)),
        (8 * size, lambda: F.gelu(wide, approximate="tanh")),
        (3 * size, lambda: x + y),
        (3 * size, lambda: x * y),
        (3 * size, lambda: x * scale),
        (4 * size, lambda: torch.cat([x, y], 1)),
        (2 * size, lambda: x.transpose(1, 2).contiguous()),
    ]
    return sum(moved for moved, _ in calls) / sum(timed(call, 0.4) for _, call in calls)


def launch_seconds() -> float:
    """Of a small operator, with the Python around it."""
    block = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8), nn.SiLU())
    x = torch.randn(1, 8)
    with torch.no_grad():
        return timed(lambda: block(x) * x + x, 0.6) / 7


def calibrate() -> Speeds:
    """The speeds of one thread of this CPU."""
    torch.set_num_threads(1)
    rate = matmul_rate()
    return Speeds(
        half=rate,
        single=rate,
        convolution=convolution_rate(),
        bandwidth=elementwise_rate(),
        launch=launch_seconds(),
        link=1e9,
        is_async=False,
    )


# -- an iteration


def measured(config: Any) -> dict[str, float]:
    """Median CPU seconds of an iteration's phases, after one for warm-up."""
    parts = build(config)
    vars(rlfactory.train.trainer)["perf_counter"] = cpu_seconds
    logged: list[Metrics] = []
    Trainer(parts, training_budget(config), NoProgress()).run(
        lambda _, metrics, rollout: logged.append(metrics)
    )
    names = ("sample", "score", "learn", "iteration")
    return {name: median(m[f"time/{name}"] for m in logged[1:]) for name in names}


def compare(words: str, speeds: Speeds, iterations: int) -> tuple[Prediction, dict[str, float]]:
    """A setting's prediction, and what was measured."""
    quiet = ["hardware=cpu", "hardware.threads=1", "scoring.background=none"]
    config = plan_from_words(*words.split(), *quiet, f"iterations={iterations + 1}").config
    work = iteration_work(config, traits_of(config))
    assert work is not None
    return predict(work, speeds), measured(config)


def on_this_cpu(names: Sequence[str], speeds: Speeds, iterations: int) -> list[list[str]]:
    """Rows of predicted and measured CPU seconds of an iteration, and of its two large phases."""
    rows = [["iteration", "predicted, s", "measured, s", "error", "sampling", "learning"]]
    for name in names:
        found, spent = compare(SETTINGS[name], speeds, iterations)
        drawn = found.phases["sampling"] + found.phases.get("decoding", 0.0)
        learned = found.phases["learning"]
        total = [f"{found.iteration:.1f}", f"{spent['iteration']:.1f}"]
        errors = [error(found.iteration, spent["iteration"])]
        errors += [error(drawn, spent["sample"]), error(learned, spent["learn"])]
        rows.append([name, *total, *errors])
        print(f"{name}: {', '.join(rows[-1][1:])}", file=sys.stderr, flush=True)
    return rows


def error(predicted: float, found: float) -> str:
    """By how much a prediction is too high or too low."""
    return f"{100 * (predicted / found - 1):+.0f} %"


# -- published runs


def published_rows() -> list[list[str]]:
    """Rows of predicted and published seconds of an iteration."""
    rows = [["run", "published, s", "predicted, s", "error", "fitted", "source"]]
    for run in yaml.safe_load(RUNS_FILE.read_text(encoding="utf-8")):
        found = predicted_on_gpu(run["words"].split())
        cells = [f"{run['seconds']:g}", f"{found:.0f}", error(found, run["seconds"])]
        rows.append([run["name"], *cells, "yes" if run["fitted"] else "no", run["source"]])
    return rows


def predicted_on_gpu(words: Sequence[str]) -> float:
    """Seconds of an iteration on the GPU that the words name."""
    config = plan_from_words(*words).config
    work, gpu = iteration_work(config, traits_of(config)), gpu_of(config["hardware"])
    assert work is not None
    assert gpu is not None
    return predict(work, Speeds.of(gpu)).iteration


def with_table(page: str, table: str) -> str:
    """The page with its table of published runs replaced."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


def show(rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    rule = ["---", *["---:"] * (len(rows[0]) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--published", action="store_true", help="write docs/prediction.md")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=[*SETTINGS])
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="a file of speeds: read if there, else written")
    a = parser.parse_args()
    if a.published:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), show(published_rows())))
        return
    if a.keep and a.keep.is_file():
        speeds = Speeds(**json.loads(a.keep.read_text()))
    else:
        speeds = calibrate()
        if a.keep:
            a.keep.write_text(json.dumps(asdict(speeds)))
    print(show(on_this_cpu(a.only, speeds, a.iterations)))


if __name__ == "__main__":
    main()
