"""Portable kernels: the variables, who refuses them, and that the instructions don't matter."""

import math
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from rlfactory.cli import app
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.hardware.base import HardwareError
from rlfactory.hardware.local import Local, exact_square_roots
from rlfactory.hardware.portable import VARIABLES, use_portable_kernels
from rlfactory.utils.errors import UserError

PORTABLE = ("hardware=cpu", "hardware.portable=true")
SMALLEST = (  # with a reward that tells two images apart: without a signal no weight moves
    *("reward=compressibility", "iterations=1", "schedule.steps=2", "prompts_per_iteration=1"),
    *("group_size=2", "model.size=32", "evaluation.prompts=1", "evaluation.grid=1"),
    *("evaluation.preview_every=0", "evaluation.size=16", "checkpoint.best=false"),
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
    plan_from_words(*PORTABLE)
    unset.setenv(name, "mine")
    with pytest.raises(PlanError, match=rf"{name}='.*', and it is 'mine'; unset it"):
        plan_from_words(*PORTABLE)
    with pytest.raises(UserError, match=name):
        use_portable_kernels({"portable": True})


def test_a_gpu_and_other_processors_are_refused(unset: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match="portable are the bits of a CPU"):
        plan_from_words("hardware=gpu", "hardware.portable=true")
    unset.setattr("platform.machine", lambda: "arm64")
    with pytest.raises(PlanError, match="this one is arm64"):
        plan_from_words(*PORTABLE)


def test_a_process_with_other_kernels_is_refused(unset: pytest.MonkeyPatch) -> None:
    unset.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX2")
    with pytest.raises(HardwareError, match="start Python with ATEN_CPU"):
        Local(device="cpu", portable=True)
    for name, value in VARIABLES.items():
        unset.setenv(name, value)
    threads = torch.get_num_threads()
    hardware = Local(device="cpu", portable=True)
    assert torch.get_num_threads() == 1
    hardware.close()
    torch.set_num_threads(threads)
    unset.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")
    with pytest.raises(HardwareError, match="torch's are AVX512 here"):
        Local(device="cpu", portable=True)
    unset.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(HardwareError, match="finds a GPU"):
        Local(device="cuda", portable=True)


def test_roots_are_the_nearest_numbers_and_the_kernel_returns() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
        values = torch.arange(1, 2000).to(dtype)
        before = values.sqrt()
        with exact_square_roots():
            found, parameter = values.sqrt(), torch.tensor([4.0], requires_grad=True)
            parameter.sqrt().backward()
            in_place = torch._foreach_sqrt([values * 1.0])[0]
        assert found.dtype == before.dtype
        assert parameter.grad == torch.tensor([0.25])
        torch.testing.assert_close(found, before)
        torch.testing.assert_close(in_place, before)
    single = torch.rand(10_000)
    with exact_square_roots():
        assert torch.equal(single.sqrt(), single.double().sqrt().float())
        assert torch.equal(single.clone().sqrt_(), single.sqrt())
        assert math.isnan(torch.tensor([-1.0]).sqrt())


@pytest.mark.slow
def test_a_portable_run_has_the_same_bits_whatever_the_number_of_cores(
    tmp_path: Path, unset: pytest.MonkeyPatch
) -> None:
    """The number of cores is stood in for by OMP_NUM_THREADS. Other instructions are not tried
    here: that takes another processor, or an emulated one. The run by the CPU's own kernels shows
    that the sums can differ, where it has AVX-512.
    """
    for folder, threads in (("a", 1), ("b", 2)):
        unset.setenv("OMP_NUM_THREADS", str(threads))
        typed = [sys.executable, "-m", "rlfactory.cli", *SMALLEST, *PORTABLE, f"run_dir={folder}"]
        subprocess.run(typed, cwd=tmp_path, stdout=subprocess.DEVNULL, check=True)
    assert app.dispatch([*SMALLEST, "hardware=cpu", f"run_dir={tmp_path / 'own'}"]) == 0
    files = [*tmp_path.glob("*/checkpoints/step_*/weights.safetensors")]
    a, b, own = (sha256(path.read_bytes()).hexdigest() for path in sorted(files))
    assert a == b != own
