"""`hardware.processes=auto` becomes the number of visible GPUs, and the plan says so."""

import pytest
import yaml

from rlfactory.config.overrides import override_frozen, plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.hardware import process_environment as environment
from rlfactory.hardware.process_environment import GPU

ENVIRONMENT = (
    *("RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "SLURM_PROCID", "SLURM_STEP_ID"),
    *("SLURM_NTASKS", "SLURM_STEP_NODELIST"),
)


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    see(monkeypatch, 0)


def see(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    gpus = tuple(GPU(str(n), f"GPU-{n}", 81559) for n in range(count))
    monkeypatch.setattr(environment, "installed_gpus", lambda: gpus)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_auto_is_one_process_for_each_visible_gpu(
    monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    see(monkeypatch, 8)
    words = [f"hardware={strategy}", "model.finetune=full"]
    plan = plan_from_words(*words)
    assert plan.config["hardware"]["processes"] == 8
    assert yaml.safe_load(plan.frozen())["hardware"]["processes"] == 8
    assert plan.derived["processes"] == "8 of 8 GPUs"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert plan_from_words(*words).derived["processes"] == "2 of 2 GPUs"
    assert plan_from_words(*words, "hardware.processes=1").derived["processes"] == "1 of 2 GPUs"
    assert plan_from_words(*words, "hardware.device=cpu").derived["processes"] == "1 on the CPU"


def test_idle_gpus_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, 4)
    assert plan_from_words().derived["processes"] == "1 of 4 GPUs; hardware=ddp uses all"
    assert "processes" not in plan_from_words("hardware=cpu").derived
    see(monkeypatch, 1)
    assert "processes" not in plan_from_words().derived


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("hardware.gpu=h100", "8 on 8 GPUs (h100)"),
        ("hardware.memory_gb=80", "8 on 8 GPUs"),
        ("hardware.device=cuda", "8 on 8 GPUs"),
        ("hardware.device=cpu", "8 on the CPU"),
    ],
)
def test_a_plan_for_another_machine_has_its_gpus(word: str, said: str) -> None:
    plan = plan_from_words("hardware=ddp", "hardware.processes=8", word)
    assert plan.derived["processes"] == said


def test_without_a_gpu_auto_is_one_with_a_note() -> None:
    plan = plan_from_words("hardware=ddp")
    assert plan.config["hardware"]["processes"] == 1
    assert plan.derived["processes"] == "1 on the CPU"
    assert "no GPU is visible here: one process" in plan.table()
    asked = plan_from_words("hardware=ddp", "hardware.processes=2").table()
    assert "no GPU is visible" not in asked


def test_auto_is_what_a_launcher_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, 8)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert plan_from_words("hardware=ddp").config["hardware"]["processes"] == 4
    told = "4, started by the launcher; 8 GPUs here"
    assert plan_from_words("hardware=ddp").derived["processes"] == told
    monkeypatch.delenv("RANK")
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert plan_from_words("hardware=slurm").config["hardware"]["processes"] == 2


def test_auto_can_be_typed_for_a_frozen_run(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = plan_from_words("hardware=ddp", "hardware.processes=2").config
    see(monkeypatch, 4)
    changed = override_frozen(frozen, ["hardware.processes=auto"])
    assert changed.values["hardware"]["processes"] == 4


def test_other_words_are_refused() -> None:
    with pytest.raises(PlanError, match=r"hardware\.processes: is 'all'; allowed is .*auto"):
        plan_from_words("hardware=ddp", "hardware.processes=all")
