"""The plan's seconds: what they follow, how they are said, and the page of published runs."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from rlfactory.config.memory import device_memory
from rlfactory.config.memory.device_memory import available_memory, on_gpu
from rlfactory.config.memory.suggestions import traits_of
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.prediction import devices
from rlfactory.config.prediction.devices import gpu_by_driver_name, gpu_models, gpu_of
from rlfactory.config.prediction.phases import iteration_work
from rlfactory.config.prediction.prediction import Prediction, describe_time, predict
from rlfactory.config.prediction.work import Speeds
from rlfactory.hardware.environment import GPU
from rlfactory.utils.types import GPUName

BENCH = Path(__file__).parents[3] / "scripts" / "bench"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (device_memory, devices):
        monkeypatch.setattr(module, "visible_gpus", lambda: [])


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCH))
    yield importlib.import_module("predict")
    sys.path.remove(str(BENCH))


def of(*words: str) -> Prediction:
    config = plan_from_words("hardware.gpu=h100", *words).config
    work, gpu = iteration_work(config, traits_of(config)), gpu_of(config["hardware"])
    assert work is not None
    assert gpu is not None
    return predict(work, Speeds.of(gpu))


def test_every_gpu_that_can_be_named_is_in_the_table() -> None:
    assert {*get_args(GPUName)} == {"auto", *gpu_models()}
    for gpu in gpu_models().values():
        assert gpu.half >= gpu.tf32 >= gpu.single * 0.9
        assert gpu.source


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA A100-SXM4-80GB", "a100_80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100_40gb"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA RTX A6000", "a6000"),
        ("Tesla T4", None),
    ],
)
def test_a_gpu_is_found_by_what_the_driver_calls_it(reported: str, name: str | None) -> None:
    found = gpu_by_driver_name(reported)
    assert (found.name if found else None) == name


def test_the_gpu_of_this_machine_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_of({"gpu": "auto"}) is None
    monkeypatch.setattr(devices, "visible_gpus", lambda: [GPU("0", "a", 1, "NVIDIA H200")])
    found = gpu_of({"gpu": "auto", "device": "auto"})
    assert found is not None
    assert found.name == "h200"
    assert gpu_of({"gpu": "auto", "device": "cpu"}) is None


def test_memory_is_that_of_the_named_gpu() -> None:
    named = {"hardware": {"device": "auto", "gpu": "a100_40gb", "memory_gb": None}}
    assert available_memory(named) == (40 * 2**30, "the a100_40gb")
    assert on_gpu(named)
    given = {"hardware": {**named["hardware"], "memory_gb": 20}}
    assert available_memory(given) == (20 * 2**30, "the device")


def test_the_plan_tells_the_time_where_a_gpu_is_known() -> None:
    assert "time" not in plan_from_words("model=sd35").derived
    said = plan_from_words("model=sd35", "algo=nft", "hardware.gpu=h100").derived["time"]
    assert said.startswith("about ")
    assert " s an iteration on one h100 (sampling " in said
    assert said.endswith(" GPU-hours")
    unknown = plan_from_words("model=sd35", "model.path=owner/unknown", "hardware.gpu=h100")
    assert "time" not in unknown.derived
    assert "time" in plan_from_words("model=gpt2", "hardware.gpu=h100").derived


def test_what_takes_longer_is_said_to() -> None:
    plain = of("model=sd35", "algo=nft", "reward=compressibility")
    guided = of("model=sd35", "algo=nft", "model.guidance=4.5")
    assert guided.phases["sampling"] == pytest.approx(2 * plain.phases["sampling"], rel=0.05)
    again = of("model=sd35", "algo=nft", "memory.gradient_checkpointing=true")
    assert 1.1 < again.phases["learning"] / plain.phases["learning"] < 1.5
    steps = of("model=sd35", "algo=nft", "schedule.steps=20")
    assert steps.phases["sampling"] == pytest.approx(2 * plain.phases["sampling"])
    slower = of("model=sd35", "algo=nft", "hardware.gpu=a100_80gb")
    assert 1.5 < slower.iteration / plain.iteration < 3.5
    scored = of("model=sd35", "algo=nft", "reward=pickscore", "prompts=pick_a_pic")
    assert scored.phases["scoring"] > 0 == plain.phases["scoring"]
    large = of("model=sd35", "algo=nft", "evaluation.size=1024")
    assert large.evaluation > 3 * plain.evaluation


def test_processes_share_the_work_and_talk() -> None:
    words = ["model=sd35", "algo=nft", "hardware=ddp", "hardware.gpu=h100"]
    one, eight = of(*words), of(*words, "hardware.processes=8")
    assert eight.phases["sampling"] == pytest.approx(one.phases["sampling"] / 8, rel=0.3)
    full = ["model=flux", "model.finetune=full", "prompts_per_iteration=8", "hardware.processes=8"]
    ddp, sharded = (of(*full, "hardware.gpu=h100", f"hardware={kind}") for kind in ("ddp", "fsdp2"))
    assert sharded.phases["learning"] > ddp.phases["learning"]  # gathers in each micro-batch


def test_a_run_has_its_evaluations() -> None:
    found = Prediction({"sampling": 2.0, "learning": 3.0}, evaluation=10.0)
    assert found.run(10, 0) == 10 * 5 + 20
    assert found.run(10, 5) == 10 * 5 + 30
    assert found.run(10, 3) == 10 * 5 + 50


def test_long_answers_take_longer() -> None:
    short, long = (
        of("model=gpt2", "model.path=Qwen/Qwen3-8B", "model.finetune=lora", f"dynamics.length={n}")
        for n in (256, 1024)
    )
    assert long.phases["sampling"] > 3.5 * short.phases["sampling"]
    assert long.phases["learning"] > 2.5 * short.phases["learning"]


def test_the_page_has_the_figures_of_today(bench: ModuleType) -> None:
    page = bench.PAGE.read_text(encoding="utf-8")
    assert bench.with_table(page, bench.show(bench.published_rows())) == page


def test_efficiencies_fit_the_runs_that_they_were_fitted_to(bench: ModuleType) -> None:
    fitted = [row for row in bench.published_rows()[1:] if row[4] == "yes"]
    ratios = [float(row[2]) / float(row[1]) for row in fitted]
    assert 0.9 < (ratios[0] * ratios[1] * ratios[2] * ratios[3]) ** 0.25 < 1.1
    assert all(0.7 < ratio < 1.3 for ratio in ratios)


@pytest.mark.slow
def test_the_bench_predicts_a_tiny_iteration(bench: ModuleType) -> None:
    speeds = Speeds(8e10, 8e10, 9e10, 1.1e10, 5.6e-6, 1e9, is_async=False)
    words = (
        "model=tiny_sd3 algo=nft prompts_per_iteration=2 group_size=4 micro_batch=4 times.count=2"
    )
    found, spent = bench.compare(f"{words} evaluation.prompts=2", speeds, 1)
    assert 0.2 < found.iteration / spent["iteration"] < 3  # the speeds are of another hour
    assert describe_time(plan_from_words(*words.split()).config, {}) is None
