"""Runs of one and of several processes, forked off one that has imported what they need.

`python teams.py` reads a JSON list of sittings on its standard input, each with `words` (a
command line) and `processes`, does them in turn, and prints one JSON object for each. Not a test.
"""

import json
import os
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rlfactory import cli, showing, worker  # noqa: F401  (what a sitting needs, once for all)
from rlfactory.hardware import distributed  # noqa: F401
from rlfactory.launch import HOST
from rlfactory.ranks import Place, variables


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def of_slurm(place: Place) -> dict[str, str]:
    """What srun would tell a task."""
    return {
        "SLURM_PROCID": str(place.rank),
        "SLURM_NTASKS": str(place.world),
        "SLURM_LOCALID": str(place.local),
        "SLURM_JOB_ID": "7",
        "SLURM_LAUNCH_NODE_IPADDR": place.address,
        "MASTER_PORT": str(place.port),
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
        cli.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.stdout.flush()
        os._exit(code)


def sitting(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Exit codes of all processes, and what they said."""
    count, port = asked["processes"], free_port()
    with tempfile.TemporaryFile() as said:
        members = []
        for rank in range(count):
            place = Place(rank, count, rank, HOST, port)
            env = {} if count == 1 else variables(place)
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
    showing.draw_curves = lambda *_, **__: None  # type: ignore[assignment]
    for asked in json.load(sys.stdin):
        print(json.dumps(sitting(asked)), flush=True)


if __name__ == "__main__":
    main()
