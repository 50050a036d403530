"""Does jobs on the pretended device, each in processes forked off one that has all imports.

Reads one JSON object a line: `words`, with `measure: true` for `iteration.measure`, else for the
command `rlfactory` in `processes` ranks and the folder `cwd`. Answers with one line each.
"""

import json
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import iteration  # before torch: it brings the device
from faulty import warm  # noqa: F401  (imported once, for all jobs)
from faulty.accidents import unadorned
from pretended.ledger import LEDGER
from pretended.tensor import PretendedDevice

from rlfactory.cli import app
from rlfactory.hardware import (
    distributed,  # noqa: F401  (imported once, for all jobs)
    process_environment,
)
from rlfactory.train.process import worker  # noqa: F401  (imported once, for all jobs)

sys.path.append(str(Path(__file__).parents[1]))
import tiny_pipelines  # noqa: E402, F401  (of a processor that small pipelines name)

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def rank_variables(rank: int, count: int, port: int) -> dict[str, str]:
    """What torchrun tells a rank."""
    rank_of = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    return {**rank_of, "MASTER_ADDR": HOST, "MASTER_PORT": str(port)}


def command(words: list[str]) -> tuple[int, Any]:
    """Run `rlfactory WORDS`; its exit code, and what happened between host and device."""
    sys.argv, code = ["rlfactory", *words], 1
    try:
        with PretendedDevice():
            app.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    events = [[e.phase, e.kind, e.what, e.place, count] for e, count in LEDGER.events.items()]
    return code, events


def do(job: Mapping[str, Any]) -> Any:
    """A job's result, in a process of its own."""
    if not job.get("measure"):
        return command(job["words"])
    try:
        return 0, iteration.measure(job["words"])
    except BaseException:
        traceback.print_exc()
        return 1, None


def begin(job: Mapping[str, Any], env: Mapping[str, str], said: IO[str], result: Path) -> int:
    """Start a process for a job; its number."""
    child = os.fork()
    if child:
        return child
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    os.environ.update(env)
    os.chdir(job.get("cwd") or ".")
    result.write_text(json.dumps(do(job)))
    sys.stdout.flush()
    os._exit(0)


def answer(job: Mapping[str, Any]) -> dict[str, Any]:
    """Exit codes and results of all ranks of a job, and what they said."""
    count, port = job.get("processes", 1), free_port()
    with (
        tempfile.TemporaryFile(mode="w+") as said,
        tempfile.TemporaryDirectory() as folder,
    ):
        files = [Path(folder) / str(rank) for rank in range(count)]
        children = []
        for rank, file in enumerate(files):
            env = {"PRETENDED_DEVICES": str(count), **job.get("env", {})}
            env |= rank_variables(rank, count, port) if count > 1 else {}
            children.append(begin(job, env, said, file))
        for child in children:
            os.waitpid(child, 0)
        found = [json.loads(f.read_text()) if f.exists() else [1, None] for f in files]
        said.seek(0)
        codes, results = zip(*found, strict=True)
        return {"codes": codes, "results": results, "said": said.read()}


def main() -> None:
    unadorned()
    app.exit_at_once = sys.exit  # a rank's result is written after the command
    process_environment.GPU_DEVICES = (os.devnull,)  # the pretended GPU has no driver's file
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
