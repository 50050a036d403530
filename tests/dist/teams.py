"""Runs of one and of several processes, forked off one that has imported what they need.

An attempt has `words` (a command line, or the words of a python `script`) and `processes`, and
perhaps `env`, `others` (words of single ranks), `slurm`, `drawn` (with its page and curves), or
`grace`: the seconds that torchrun, whose ranks are forked as well, gives those that are left. Not a
test.
"""

import multiprocessing
import os
import runpy
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import faulty.warm  # noqa: F401  (before all else)
from torch.distributed.elastic.multiprocessing.api import PContext
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from rlfactory.cli import app
from rlfactory.hardware.process_environment import ProcessInfo
from rlfactory.report import results
from rlfactory.train.process import launch
from rlfactory.train.process.launch import HOST
from rlfactory.utils.processes import SIGNALS

FORK = multiprocessing.get_context("fork")


def rank_of_torchrun(words: Sequence[str], env: Mapping[str, str], files: Sequence[Any]) -> None:
    """What `python -u -m MODULE WORDS...` does, from a session of its own."""
    os.setsid()
    for number in (*SIGNALS, signal.SIGCHLD):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    for file, handle in zip(files, (1, 2), strict=True):
        if file is not None:
            os.dup2(file.fileno(), handle)
    # what the process before has put in their place is not a new Python's
    sys.stdout, sys.stderr = (open(n, "w", closefd=False, buffering=1) for n in (1, 2))  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    at = words.index("-m")
    sys.argv = [*words[at + 1 :]]
    runpy.run_module(words[at + 1], run_name="__main__", alter_sys=True)


def fork_ranks(grace: int) -> None:
    """Have torchrun fork its ranks off this process, and wait this long for those that are left."""

    def begun(handler: Any, words: Sequence[str], env: Mapping[str, str]) -> Any:
        files = (handler._stdout, handler._stderr)
        rank = FORK.Process(target=rank_of_torchrun, args=(words, env, files))
        rank.start()
        return rank._popen  # type: ignore[attr-defined]  # has what torchrun asks of a Popen

    SubprocessHandler._popen = begun  # type: ignore[method-assign]
    PContext.close.__defaults__ = (None, grace)
    launch.TORCHRUN_GRACE = grace


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
        "SLURM_STEP_ID": "0",
        "SLURM_LAUNCH_NODE_IPADDR": place.master_addr,
        "MASTER_PORT": str(place.master_port),
    }


def member(
    words: Sequence[str], env: Mapping[str, str], asked: Mapping[str, Any], said: tuple[int, int]
) -> int:
    """A process that types `words`, as torchrun would have it; its number."""
    child = os.fork()
    if child:
        return child
    os.dup2(said[0], 1)
    os.dup2(said[1], 2)
    os.environ.update(env)
    sys.argv, code = ["rlfactory", *words], 1
    try:
        if not asked.get("drawn"):
            # what draws takes longer than what trains
            results.draw_run = lambda folder, *_: folder.page  # type: ignore[assignment]
        if "grace" in asked:
            fork_ranks(asked["grace"])
        if "script" in asked:
            sys.argv[0] = asked["script"]
            sys.path.insert(0, os.path.dirname(asked["script"]))
            runpy.run_path(asked["script"], run_name="__main__")
            code = 0
        else:
            app.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def attempt(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Exit codes of all processes, and what they said: `out`, `err` and both."""
    count, port = asked["processes"], free_port()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        members = []
        for rank in range(count):
            place = ProcessInfo(rank, count, rank, HOST, port)
            env = {} if count == 1 else of_torchrun(place)
            if asked.get("slurm"):
                env = of_slurm(place)
            words = [*asked["words"], *asked.get("others", {}).get(str(rank), [])]
            env |= asked.get("env", {}).get(str(rank), {})
            members.append(member(words, env, asked, (out.fileno(), err.fileno())))
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in members]
        out.seek(0)
        err.seek(0)
        said = {"out": out.read().decode(), "err": err.read().decode()}
    return {"codes": codes, **said, "said": said["out"] + said["err"]}
