"""Which of a run's processes this one is, as whoever started it says; asked without torch."""

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MANY = (
    "rlfactory.hardware.deepspeed.DeepSpeed",
    "rlfactory.hardware.distributed.Distributed",
)
"""What runs in several processes."""
PORTS = range(20_000, 60_000)

Node = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """`rank` of `world` processes, number `local` on this machine; rank 0 listens at `address`."""

    rank: int
    world: int
    local: int
    address: str
    port: int

    @property
    def url(self) -> str:
        """Where torch has processes meet. What torchrun starts meets at torchrun's own place, which
        torch knows from the environment.
        """
        agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return "env://" if agent else f"tcp://{self.address}:{self.port}"


def is_many(node: Node) -> bool:
    """Whether hardware of this configuration is made of processes that work together."""
    return node.get("_target_") in MANY


def place(node: Node) -> Place | None:
    """Our place among the processes that a launcher has started; None where none has.

    torchrun's variables are those of every launcher but SLURM's srun, which has its own.
    """
    env = os.environ
    if node["launcher"] == "slurm" and "RANK" not in env:
        return _of_slurm(node["port"]) if "SLURM_PROCID" in env else None
    if "RANK" not in env or "WORLD_SIZE" not in env:
        return None
    return Place(
        rank=int(env["RANK"]),
        world=int(env["WORLD_SIZE"]),
        local=int(env.get("LOCAL_RANK", env["RANK"])),
        address=env.get("MASTER_ADDR", "127.0.0.1"),
        port=int(env.get("MASTER_PORT", node["port"] or PORTS[0])),
    )


def follows(node: Node) -> bool:
    """Whether another process leads this run: makes its folder, saves and prints."""
    if not is_many(node):
        return False
    here = place(node)
    return here is not None and here.rank > 0


def is_to_launch(node: Node) -> bool:
    """Whether processes have to be started before this run can begin."""
    return is_many(node) and place(node) is None and node["processes"] > 1


def is_quiet(typed: Sequence[str]) -> bool:
    """Whether a launcher has given this process a rank other than 0: the first one speaks."""
    rank = os.environ.get("RANK")
    if rank is None and {"hardware=slurm", "hardware.launcher=slurm"} & {*typed}:
        rank = os.environ.get("SLURM_PROCID")
    return rank not in (None, "0")


def variables(here: Place) -> dict[str, str]:
    """The environment that tells a process its place."""
    return {
        "RANK": str(here.rank),
        "WORLD_SIZE": str(here.world),
        "LOCAL_RANK": str(here.local),
        "MASTER_ADDR": here.address,
        "MASTER_PORT": str(here.port),
    }


def _of_slurm(port: int | None) -> Place:
    env = os.environ
    job = env.get("SLURM_JOB_ID", "0") + "." + env.get("SLURM_STEP_ID", "0")
    # all tasks of a step compute the same one, and two steps on a machine seldom do
    chosen = port or PORTS[zlib.crc32(job.encode()) % len(PORTS)]
    return Place(
        rank=int(env["SLURM_PROCID"]),
        world=int(env["SLURM_NTASKS"]),
        local=int(env.get("SLURM_LOCALID", "0")),
        address=env.get("MASTER_ADDR") or env.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"),
        port=int(env.get("MASTER_PORT", chosen)),
    )
