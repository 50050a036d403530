"""Portable kernels: the variables, who refuses them, and that the instructions don't matter."""

import os
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.hardware import local
from rlfactory.hardware.base import HardwareError
from rlfactory.hardware.portable import VARIABLES, use_portable_kernels
from rlfactory.utils.errors import UserError

PORTABLE = ("hardware=cpu", "hardware.portable=true")
SMALLEST = (
    *("iterations=1", "schedule.steps=2", "prompts_per_iteration=1", "group_size=2"),
    *("evaluation.prompts=2", "evaluation.grid=2", "checkpoint.best=false"),
)


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without the variables, to which the former one returns."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is restored also where it was not set
        monkeypatch.delenv(name)
    return monkeypatch


def test_variables_are_set_before_torch_is_imported(unset: pytest.MonkeyPatch) -> None:
    use_portable_kernels({"portable": False})
    assert not VARIABLES.keys() & os.environ.keys()
    with pytest.raises(UserError, match=r"imported it.*MKL_CBWR='COMPATIBLE'"):
        use_portable_kernels({"portable": True})
    unset.delitem(sys.modules, "torch")
    use_portable_kernels({"portable": True})
    assert {name: os.environ[name] for name in VARIABLES} == VARIABLES


def test_with_the_variables_it_is_never_too_late(unset: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        unset.setenv(name, value)
    use_portable_kernels({"portable": True})


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_with_another_value_is_refused(name: str, unset: pytest.MonkeyPatch) -> None:
    plan_from_words([*PORTABLE])
    unset.setenv(name, "mine")
    with pytest.raises(PlanError, match=rf"{name}='.*', and it is 'mine'; unset it"):
        plan_from_words([*PORTABLE])
    with pytest.raises(UserError, match=name):
        use_portable_kernels({"portable": True})


def test_a_gpu_and_other_processors_are_refused(unset: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match="portable are the bits of a CPU"):
        plan_from_words(["hardware=gpu", "hardware.portable=true"])
    unset.setattr("platform.machine", lambda: "arm64")
    with pytest.raises(PlanError, match="this one is arm64"):
        plan_from_words([*PORTABLE])


def test_a_process_with_other_kernels_is_refused(unset: pytest.MonkeyPatch) -> None:
    unset.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")
    with pytest.raises(HardwareError, match="torch's are AVX512 here"):
        local.Local(device="cpu", portable=True)
    unset.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(HardwareError, match="finds a GPU"):
        local.Local._require_portable_kernels(local.Local.__new__(local.Local)) if False else (
            local.Local(device="cuda", portable=True)
        )
