"""The process environment: which rank this process is, and which GPUs it sees. Imports no torch."""

import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from glob import glob
from typing import Any

from rlfactory.utils.errors import UserError

DISTRIBUTED = "rlfactory.hardware.distributed.Distributed"
"""The `_target_` of the hardware that runs in several processes."""
AUTO = "auto"
"""The value of `hardware.processes` that `auto_processes` replaces."""
PORTS = range(20_000, 60_000)
"""Ports from which the tasks of a SLURM job choose theirs."""
GPU_DEVICES = ("/dev/nvidia[0-9]*", "/dev/nvidia-caps*", "/dev/kfd", "/dev/dxg", "/dev/nvhost-*")
"""Device files of NVIDIA's and AMD's drivers."""
NVIDIA_SMI_SECONDS = 10
TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
SLURM_VARIABLES = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID")
"""Those that a rank certainly has, its number first."""
ALLOCATOR_VARIABLES = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}
"""The environment variables by which users configure torch's allocator."""

Node = Mapping[str, Any]


@dataclass(frozen=True)
class ProcessInfo:
    """One process of a distributed run, as its launcher describes it.

    Attributes:
        rank: its number among all processes, from 0.
        world_size: the number of processes.
        local_rank: its number among those of this machine.
        master_addr: the address at which rank 0 listens.
        master_port: the port at which rank 0 listens.
    """

    rank: int
    world_size: int
    local_rank: int
    master_addr: str
    master_port: int

    @property
    def url(self) -> str:
        """The rendezvous for `torch.distributed`. Processes of torchrun meet in torchrun's own
        store, which torch finds by the environment.
        """
        agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return "env://" if agent else f"tcp://{self.master_addr}:{self.master_port}"


@dataclass(frozen=True)
class GPU:
    """A GPU that nvidia-smi lists; `memory_mib` is None where it does not say."""

    index: str
    uuid: str
    memory_mib: int | None
    name: str = ""


def use_expandable_segments() -> None:
    """Let torch's CUDA allocator grow its segments, unless the user has configured it.

    Call it before the first allocation, when torch reads the variable. Segments of fixed size
    fragment where shapes vary, as those of texts do. Processes started later inherit the setting.
    """
    if not ALLOCATOR_VARIABLES & os.environ.keys():
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"


def is_distributed(node: Node) -> bool:
    """Whether the hardware of this configuration runs in processes that communicate."""
    return node.get("_target_") == DISTRIBUTED


def process_info(node: Node) -> ProcessInfo | None:
    """This process among those that a launcher has started; None if there is no launcher.

    All launchers set torchrun's variables but SLURM's srun, which sets its own.

    Raises:
        UserError: a variable of the launcher's is no whole number.
    """
    env = os.environ
    if node.get("launcher") == "slurm" and not env.get("RANK"):
        # a batch script has a SLURM_PROCID too; the step alone says that srun started this
        if not {"SLURM_PROCID", "SLURM_STEP_ID"} <= env.keys():
            return None
        rank, size, local = _number("SLURM_PROCID"), "SLURM_NTASKS", _number("SLURM_LOCALID", 0)
        job = env.get("SLURM_JOB_ID", "0") + "." + env["SLURM_STEP_ID"]
        # all tasks of a step compute the same one, and two steps on a machine seldom do
        port, master = PORTS[zlib.crc32(job.encode()) % len(PORTS)], _slurm_master()
    elif env.get("RANK") and env.get("WORLD_SIZE"):
        rank, size, port, master = _number("RANK"), "WORLD_SIZE", PORTS[0], "127.0.0.1"
        local = _number("LOCAL_RANK", rank)
    else:
        return None
    return ProcessInfo(
        rank=rank,
        world_size=_number(size),
        local_rank=local,
        master_addr=env.get("MASTER_ADDR") or master,
        master_port=_number("MASTER_PORT", node.get("port") or port),
    )


def started_processes() -> int:
    """The number of processes that a launcher says it has started; 1 where none says so."""
    return _number("WORLD_SIZE", 1)


def _number(name: str, default: int | None = None) -> int:
    """A variable of a launcher's; UserError where it is no whole number, or must be set."""
    text = os.environ.get(name, "").strip()
    if text.isdecimal():
        return int(text)
    if text or default is None:
        found = f"is {text!r}" if text else "is not set"
        allowed = "allowed is a whole number, as a launcher sets it; without one, unset it"
        raise UserError(f"the environment variable {name} {found}; {allowed}")
    return default


def is_non_main(node: Node) -> bool:
    """Whether this process is a rank other than 0, which makes the run folder, saves and prints."""
    if not is_distributed(node):
        return False
    info = process_info(node)
    return info is not None and info.rank > 0


def needs_launch(node: Node) -> bool:
    """Whether this process has to start the run's processes itself."""
    return is_distributed(node) and process_info(node) is None and node["processes"] > 1


def auto_processes(node: Node) -> int:
    """The number of processes for `hardware.processes=auto`.

    As many as a launcher has started; else one for each visible GPU, or 1 on a CPU.
    """
    if (info := process_info(node)) is not None:
        return info.world_size
    return 1 if node.get("device") == "cpu" else max(1, len(visible_gpus()))


def is_quiet(typed: Sequence[str]) -> bool:
    """Whether this process leaves messages to rank 0; also of a command that can't be planned.

    A shell may have a RANK left that no launcher set, and nobody else would say what is wrong.
    """
    env, names = os.environ, TORCHRUN_VARIABLES
    if not env.get("RANK") and {"hardware=slurm", "hardware.launcher=slurm"} & {*typed}:
        names = SLURM_VARIABLES
    values = [env.get(name, "") for name in names]
    return all(map(str.isdecimal, values)) and int(values[0]) > 0


def visible_gpu_names() -> list[str] | None:
    """The GPUs that CUDA_VISIBLE_DEVICES names, by index or UUID; None if it is not set.

    CUDA reads no further than the first name that can't be a GPU, as -1.
    """
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    names = list[str]()
    for name in (part.strip() for part in value.split(",")):
        if not (name.isdecimal() or name.startswith(("GPU-", "MIG-"))):
            break
        names.append(name)
    return names


def visible_gpus() -> list[GPU]:
    """The GPUs that this process may use, in CUDA_VISIBLE_DEVICES' order; empty without a driver.

    Part of a GPU (MIG) has no known memory.
    """
    gpus, names = installed_gpus(), visible_gpu_names()
    if names is None or not gpus:
        return [*gpus]
    found = list[GPU]()
    for name in names:
        # a UUID may be cut short where it stays unique
        matches = [gpu for gpu in gpus if name == gpu.index or gpu.uuid.startswith(name)]
        if name.startswith("MIG-"):
            matches = [GPU(name, name, None)]
        if len(matches) != 1:
            break
        found += matches
    return found


def lacks_gpu() -> bool:
    """Whether this process certainly sees no GPU of a kind that torch knows as `cuda`.

    A container may have a GPU and no nvidia-smi; ROCm's GPUs are `cuda` too, as is WSL's.
    """
    if installed_gpus():
        return not visible_gpus()
    return not any(glob(pattern) for pattern in GPU_DEVICES)


@cache
def installed_gpus() -> tuple[GPU, ...]:
    """All GPUs of this machine by nvidia-smi; empty where there is none, or no such program."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    query = ("--query-gpu=index,uuid,memory.total,name", "--format=csv,noheader,nounits")
    try:
        output = subprocess.run(
            [tool, *query], capture_output=True, text=True, timeout=NVIDIA_SMI_SECONDS, check=True
        ).stdout
        rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]
        return tuple(
            GPU(row[0], row[1], _mib(row[2]), *row[3:]) for row in rows if len(row) in (3, 4)
        )
    except (OSError, subprocess.SubprocessError):
        return ()


def _mib(cell: str) -> int | None:
    """A cell of nvidia-smi's; "[N/A]" where a GPU shares the machine's memory."""
    try:
        return int(float(cell))
    except ValueError:
        return None


def _slurm_master() -> str:
    """The host of rank 0: the first of the step.

    SLURM_LAUNCH_NODE_IPADDR is where srun was typed, which may be a login node: only a last resort.
    """
    env = os.environ
    for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        if host := first_host(env.get(name, "")):
            return host
    return env.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")


def first_host(text: str) -> str:
    """The first host of a list such as `node[01-04,07],gpu3`: `node01`; of "" none, ""."""
    # commas in brackets belong to a name
    first = re.match(r"(?:[^,\[\]]|\[[^\[\]]*\])*", text.strip())
    assert first is not None
    return re.sub(r"\[\s*([^\],-]*)[^\]]*\]", r"\1", first[0]).strip()
