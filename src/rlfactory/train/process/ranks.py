"""Tasks of all ranks of a run: agree on one configuration, report a lost rank; and the
configuration of the same run in a single process.
"""

from pathlib import Path

from rlfactory.config.frozen import IGNORED
from rlfactory.hardware.base import AllRanksError, Hardware, PeerLostError
from rlfactory.hardware.process_environment import is_distributed
from rlfactory.run.checkpoint.checksums import digest
from rlfactory.run.folder import RunFolder
from rlfactory.run.log_file import last_line
from rlfactory.utils.dotted_keys import Config

_TRAFFIC = ("Connection closed by peer", "Connection reset by peer", "gloo/transport", "NCCL")
"""Words by which torch's errors of communication are known; they have no class of their own."""


def require_same_config(hardware: Hardware, config: Config, path: Path | None) -> Path:
    """Rank 0's run folder; AllRanksError unless all ranks have the same configuration.

    Processes of torchrun or SLURM each read the command by themselves, perhaps on other machines.
    A collective: all ranks call it.
    """
    own = digest({key: value for key, value in config.items() if key not in IGNORED})
    main, folder = hardware.broadcast((own, str(path)))
    matches = [line == main for line in hardware.all_gather_list([own])]
    if not all(matches):
        others = ", ".join(str(rank) for rank, is_same in enumerate(matches) if not is_same)
        raise AllRanksError(
            f"process {others} has another configuration than process 0: type the same command for"
            " all, and have the same files of your own on all machines"
        )
    return Path(folder) if path is None else path


def is_peer_lost(error: BaseException) -> bool:
    """Whether an error says that another rank does not answer any more."""
    if isinstance(error, PeerLostError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _TRAFFIC)


def as_peer_lost(error: Exception, folder: RunFolder | None = None) -> Exception:
    """A PeerLostError for an error of torch's communication; any other error as it is.

    Its message ends with the last lines of the other ranks' logs, which may say why one was lost.
    """
    if not is_peer_lost(error):
        return error
    message = str(error)
    if not isinstance(error, PeerLostError):
        message = f"another process does not answer any more: {message.splitlines()[0]}"
    logs = [] if folder is None else logs_of(folder)
    return PeerLostError("\n".join([message, *(f"{f.stem}: {last_line(f)}" for f in logs)]))


def logs_of(folder: RunFolder) -> list[Path]:
    """The logs of ranks other than 0; each has one once it has an error to report."""
    return sorted(folder.path.glob("log_rank*.txt"))


def single_process_config(config: Config) -> Config:
    """The configuration with one process in the place of several, to use a run's weights."""
    node = config["hardware"]
    if not is_distributed(node):
        return config
    names = ("device", "threads", "gpu", "memory_gb", "deterministic")
    kept = {key: node[key] for key in names if key in node}
    return {**config, "hardware": {"_target_": "rlfactory.hardware.local.Local", **kept}}
