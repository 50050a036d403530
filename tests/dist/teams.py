"""Runs of one and of several processes, forked off one that has imported what they need.

`python teams.py` reads JSON objects on its standard input, a line each: a `folder`, and `attempts`
with `words` (a command line) and `processes`. It does them in turn in the folder, and prints one
JSON object for each. Not a test.
"""

import json
import os
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rlfactory.cli import app  # noqa: F401  (imported once, for all runs)
from rlfactory.hardware import distributed  # noqa: F401
from rlfactory.hardware.environment import ProcessInfo
from rlfactory.report import results  # noqa: F401  (imported once, for all runs)
from rlfactory.train.process import worker  # noqa: F401  (imported once, for all runs)
from rlfactory.train.process.launch import HOST


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def of_torchrun(info: ProcessInfo) -> dict[str, str]:
    """The environment that torchrun gives a rank."""
    return {
        "RANK": str(info.rank),
        "WORLD_SIZE": str(info.world_size),
        "LOCAL_RANK": str(info.local_rank),
        "MASTER_ADDR": info.master_addr,
        "MASTER_PORT": str(info.master_port),
    }


def of_slurm(place: ProcessInfo) -> dict[str, str]:
    """What srun would tell a task."""
    return {
        "SLURM_PROCID": str(place.rank),
        "SLURM_NTASKS": str(place.world_size),
        "SLURM_LOCALID": str(place.local_rank),
        "SLURM_JOB_ID": "7",
        "SLURM_LAUNCH_NODE_IPADDR": place.master_addr,
        "MASTER_PORT": str(place.master_port),
    }


def member(words: Sequence[str], env: Mapping[str, str], said: int) -> int:
    """A process that types `words`, as torchrun would have it; its number."""
    child = os.fork()
    if child:
        return child
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.environ.update(env)
    sys.argv, code = ["rlfactory", *words], 1
    try:
        app.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.stdout.flush()
        os._exit(code)


def attempt(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Exit codes of all processes, and what they said."""
    count, port = asked["processes"], free_port()
    with tempfile.TemporaryFile() as said:
        members = []
        for rank in range(count):
            place = ProcessInfo(rank, count, rank, HOST, port)
            env = {} if count == 1 else of_torchrun(place)
            if asked.get("slurm"):
                env = of_slurm(place)
            words = [*asked["words"], *asked.get("others", {}).get(str(rank), [])]
            env |= asked.get("env", {}).get(str(rank), {})
            members.append(member(words, env, said.fileno()))
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in members]
        said.seek(0)
        return {"codes": codes, "said": said.read().decode()}


def main() -> None:
    torch.set_num_threads(1)
    # what draws takes longer than what trains
    results.draw_run = lambda folder, *_: folder.page  # type: ignore[assignment]
    for line in sys.stdin:
        given = json.loads(line)
        os.chdir(given["folder"])
        for asked in given["attempts"]:
            print(json.dumps(attempt(asked)), flush=True)


if __name__ == "__main__":
    main()
