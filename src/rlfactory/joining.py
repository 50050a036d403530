"""How processes find that they are of one run, and a run goes on in one process alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlfactory.hardware.base import CommonError, Hardware, LostError
from rlfactory.ranks import is_many
from rlfactory.run.folder import RunFolder
from rlfactory.run.manifest import digest
from rlfactory.sameness import NO_MATTER

Config = Mapping[str, Any]
_TRAFFIC = ("Connection closed by peer", "Connection reset by peer", "gloo/transport", "NCCL")


def joined(hardware: Hardware, config: Config, path: Path | None) -> Path:
    """The run folder of the process that leads; CommonError unless all have its configuration.

    Whoever is started by torchrun or SLURM reads the command by itself, on a machine of its own.
    """
    ours = digest({key: value for key, value in config.items() if key not in NO_MATTER})
    leader, place = hardware.tell((ours, str(path)))
    same = [line == leader for line in hardware.gather_texts([ours])]
    if not all(same):
        others = ", ".join(str(rank) for rank, is_same in enumerate(same) if not is_same)
        raise CommonError(
            f"process {others} has another configuration than process 0: type the same command for"
            " all, and have the same files of your own on all machines"
        )
    return Path(place) if path is None else path


def told_apart(error: Exception, folder: RunFolder | None = None) -> Exception:
    """An error, or a LostError where it is that of torch's own traffic between processes; with what
    others last wrote into their logs, which may be why they are gone.
    """
    said = str(error)
    traffic = isinstance(error, RuntimeError) and any(word in said for word in _TRAFFIC)
    if not traffic and not isinstance(error, LostError):
        return error
    if not isinstance(error, LostError):
        said = f"another process does not answer any more: {said.splitlines()[0]}"
    told = [] if folder is None else [f"{log.stem}: {_last(log)}" for log in logs_of(folder)]
    return LostError("\n".join([said, *told]))


def logs_of(folder: RunFolder) -> list[Path]:
    """Those of the processes that follow; each has one once it has an error to tell."""
    return sorted(folder.path.glob("log_rank*.txt"))


def _last(log: Path) -> str:
    """The last line of a log, which a traceback ends with."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "nothing"


def alone(config: Config) -> Config:
    """The configuration of a run with one process in the place of several, to look at what it
    learned.
    """
    node = config["hardware"]
    if not is_many(node):
        return config
    kept = {key: node[key] for key in ("device", "threads", "memory_gb")}
    return {**config, "hardware": {"_target_": "rlfactory.hardware.local.Local", **kept}}
