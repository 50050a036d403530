"""Builds `guard.cpp` once a machine and torch version, and loads it.

Imports no torch: at its import torch asks for hooks, and keeps the answer.
"""

import ctypes
import fcntl
import hashlib
import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("guard.cpp")


class NoGuardError(RuntimeError):
    """The pretended device can't work here; says why."""


def load_guard() -> None:
    """Give torch a device guard and hooks for CUDA; before torch is imported.

    Raises:
        NoGuardError: there is a GPU, no compiler, or the compiler failed.
    """
    if "torch" in sys.modules:
        raise NoGuardError("torch was imported before the guard was loaded")
    folder, version = _installed_torch()
    if version["cuda"] is None:
        ctypes.CDLL(str(built_guard(folder, version["__version__"])), ctypes.RTLD_GLOBAL)
        return
    import torch

    if torch.cuda.is_available():
        raise NoGuardError("there is a GPU here: pretending another would hide it")
    # a CUDA build has hooks, and a guard that does nothing where there is no GPU
    torch._C._ensureCUDADeviceGuardSet()


def _installed_torch() -> tuple[Path, dict[str, Any]]:
    """The folder of torch, and what its version.py says."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise NoGuardError("torch is not installed")
    folder = Path(spec.origin).parent
    return folder, runpy.run_path(str(folder / "version.py"))


def built_guard(torch_folder: Path, version: str) -> Path:
    """The shared library, built on the first call; other processes wait for it meanwhile."""
    key = hashlib.sha256(SOURCE.read_bytes() + f"{torch_folder}{version}".encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"rlfactory-pretended-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise NoGuardError(f"{folder} belongs to another user")
    library = folder / f"guard-{key}.so"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _compile(library, torch_folder)
    return library


def _compile(library: Path, torch_folder: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        raise NoGuardError("g++ is not installed")
    includes = [torch_folder / "include", torch_folder / "include/torch/csrc/api/include"]
    libraries, unfinished = torch_folder / "lib", library.with_suffix(".partial")
    command = [
        *(compiler, "-O1", "-shared", "-fPIC", "-std=c++20"),
        *(word for include in includes for word in ("-I", str(include))),
        *(str(SOURCE), "-o", str(unfinished)),
        *("-L", str(libraries), "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{libraries}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoGuardError(f"g++ failed: {done.stderr[-2000:]}")
    unfinished.rename(library)
