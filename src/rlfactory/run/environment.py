"""environment.json: the device, the versions and the git commit of each process of a run; and that
on which bits depend, which a checkpoint records.
"""

import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlfactory.run.atomic_write import write_json
from rlfactory.run.checkpoint.checksums import read_manifest, versions
from rlfactory.utils.data_files import FileError, read_json
from rlfactory.utils.version import __version__, installed_version

if TYPE_CHECKING:
    import torch

PACKAGES = ("torch", "diffusers", "transformers", "peft")


@dataclass(frozen=True)
class Environment:
    """Where a process of a run computed.

    Attributes:
        device: the name of the GPU or CPU.
        processes: how many processes trained together.
        versions: versions of Python and of packages by name.
        commit: the git commit of the working directory, with `+` where files differ from it; None
            outside of a repository.
    """

    device: str
    processes: int
    versions: dict[str, str]
    commit: str | None


def current_environment(device: str, processes: int = 1) -> Environment:
    """The environment of this process; `device` is a GPU's name, or `cpu`."""
    name = cpu_name() if device == "cpu" else device
    versions = {"rlfactory": __version__, "Python": platform.python_version()}
    versions |= {name: found for name in PACKAGES if (found := installed_version(name))}
    return Environment(name, processes, versions, git_commit())


def record_environment(path: Path, environment: Environment) -> None:
    """Append an environment to a file, unless it is the same as the last one."""
    kept = read_environments(path)
    if not kept or kept[-1] != environment:
        write_json(path, [asdict(row) for row in [*kept, environment]])


def read_environments(path: Path) -> list[Environment]:
    """All environments of a run, the first one first; none where the file can't be read."""
    try:
        rows = read_json(path, list[Environment])
    except (FileError, FileNotFoundError):
        return []
    return [Environment(**row) for row in rows]


@cache  # read from /proc, for each checkpoint
def cpu_name() -> str:
    """The processor's name, as far as the system tells it, and its number of cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(named, "") or platform.processor() or f"CPU ({platform.machine()})"
    return f"{name}, {os.cpu_count() or 1} cores"


def git_commit() -> str | None:
    """The commit of the working directory's repository, `+` if tracked files have changed."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return None
    return f"{head}+" if _git("status", "--porcelain", "--untracked-files=no") else head


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


NUMERICS = "numerics"
WORDS = {
    "device": "device",
    "threads": "threads",
    "cpu_capability": "vector instructions of the CPU",
    "micro_batch": "micro_batch",
    "sample_batch": "sample_batch",
    "world_size": "processes",
}
"""What the manifest records, in the words of messages."""


def numerics(device: "torch.device", config: Mapping[str, Any], world_size: int) -> dict[str, Any]:
    """The manifest's record of the process that computes, as plain values."""
    import torch  # reports read this file without it

    is_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if is_gpu else cpu_name(),
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "micro_batch": config.get("micro_batch"),
        "sample_batch": config.get("sample_batch"),
        "world_size": world_size,
    }


def changes(checkpoint: Path, now: Mapping[str, Any]) -> Iterator[str]:
    """How a process with these `numerics` differs from the one that made a checkpoint, a phrase for
    each difference; what the manifest of an earlier version does not record is not compared.
    """
    manifest = read_manifest(checkpoint)
    yield from differing(manifest.get(NUMERICS) or {}, now)
    yield from differing(manifest.get("versions") or {}, versions())


def differing(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """A phrase for each value of `then` that is another one now."""
    for name, value in then.items():
        if name in now and now[name] != value:
            yield f"{WORDS.get(name, name)}: {value} then, {now[name]} now"
