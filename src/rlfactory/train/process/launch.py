"""Runs training in this process, or through torchrun in several on this machine.

Imports torch only once processes are started.
"""

import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlfactory.config.problems import PlanError, Problem
from rlfactory.hardware.process_environment import (
    is_distributed,
    lacks_gpu,
    needs_launch,
    process_info,
    started_processes,
)
from rlfactory.run.folder import RunFolder, RunFolderError, Status
from rlfactory.run.lock import require_free
from rlfactory.run.log_file import last_line
from rlfactory.train.process.run_arguments import EXIT_CODE, RunArguments
from rlfactory.utils.console import print_error
from rlfactory.utils.processes import SIGNALS, exit_at_once, signal_handlers

HOST = "127.0.0.1"
GRACE = 5
"""Seconds beyond `hardware.timeout` that ranks have to save and exit after a signal."""
TORCHRUN_GRACE = 30
"""Seconds that torchrun gives the other ranks to exit after one has failed; no option sets them."""
ELASTIC = "torch.distributed.elastic"
"""The package whose loggers are torchrun's."""


def run_or_launch(arguments: RunArguments, config: Mapping[str, Any]) -> int:
    """Train in this process, or in as many as `hardware.processes` says; returns the exit code."""
    if needs_launch(config["hardware"]):
        return launch(arguments, config["hardware"])
    # for seconds, in which an exception in the middle of an import would be taken for a failure of
    # the library's; nothing is lost yet
    run = RunFolder(arguments.run)
    with signal_handlers(lambda number, _: exit_at_once(_stopped(run, number)), SIGNALS):
        from rlfactory.train.process import worker

    return worker.run_main_process(arguments)


def require_possible(config: Mapping[str, Any]) -> None:
    """Raise PlanError if the processes that `hardware` asks for can't be started here."""
    node = config["hardware"]
    if node.get("device") == "cuda" and lacks_gpu():
        message = "is cuda, and no GPU is visible here; auto takes a CPU too"
        raise PlanError([Problem("hardware.device", message, "hardware.device=auto")])
    if not is_distributed(node) and (count := started_processes()) > 1:
        message = f"is for one process, and by WORLD_SIZE a launcher has started {count}"
        several = f"type hardware=ddp hardware.processes={count}, or without one unset WORLD_SIZE"
        raise PlanError([Problem("hardware", f"{message}; {several}", "hardware=ddp")])
    # in a batch script one process would train alone, and its other tasks idle
    is_batch = is_distributed(node) and process_info(node) is None and "SLURM_PROCID" in os.environ
    if not (needs_launch(node) or is_batch):
        return
    if node["launcher"] == "slurm":
        message = "is slurm, but srun did not start this process; type srun before the command"
        raise PlanError([Problem("hardware.launcher", message, "hardware.launcher=auto")])
    if node["port"] is not None and not _is_free(node["port"]):
        message = f"is {node['port']}, which is in use on this machine; null takes a free one"
        raise PlanError([Problem("hardware.port", message, "hardware.port=null")])


def launch(arguments: RunArguments, node: Mapping[str, Any]) -> int:
    """Run all ranks through torchrun until they end; returns the run's exit code.

    That is rank 0's: 0, or 128 + the signal that stopped the run. It is 1 if a rank failed; the
    message then names the ranks that were killed, and the run's status is `failed`.
    """
    # torchrun in this process and not as a command: its exceptions say which rank ended how
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError

    sys.unraisablehook = _unless_timer_ends_itself
    run = RunFolder(arguments.run)
    with TemporaryDirectory(prefix="rlfactory_") as folder, _torchrun_surroundings(node):
        code_file, asked = Path(folder) / "exit_code", 0
        try:
            words = torchrun_words(arguments, node, code_file)
            torchrun.run(torchrun.parse_args(words))  # type: ignore[no-untyped-call]
        except SignalException as error:
            asked = int(error.sigval)
        except ChildFailedError as error:
            _report_failure(error.failures, run)
            return 1
        except RendezvousError as error:
            print_error(f"torchrun could not start the processes: {error}")
            return 1
        has_begun = code_file.exists()
        text = code_file.read_text(encoding="utf-8") if has_begun else ""
    if text:
        return int(text)
    if not has_begun:
        return _stopped(run, asked)
    limit = _shutdown_timeout(node)
    print_error(f"the processes did not stop within {limit} s of a signal, and were killed")
    _mark(run, "failed")
    return 1


def _unless_timer_ends_itself(unraisable: "sys.UnraisableHookArgs") -> None:
    """Print what could not be raised, but for a timer of torchrun that is dropped in its thread.

    Its finalizer then joins that thread, which fails and harms nothing.
    """
    if str(unraisable.exc_value) != "cannot join current thread":
        sys.__unraisablehook__(unraisable)


def torchrun_words(arguments: RunArguments, node: Mapping[str, Any], code_file: Path) -> list[str]:
    """The command line of `python -m torch.distributed.run` for the hardware of `node`."""
    handled = [n for n in SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
    rendezvous = ["--standalone"]
    if node["port"] is not None:
        rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint={HOST}:{node['port']}"]
    return [
        *(*rendezvous, "--local-addr", HOST),  # a machine's own name may not resolve
        *("--nproc-per-node", str(node["processes"])),
        *("--max-restarts", str(node["restarts"])),
        *("--signals-to-handle", ",".join(number.name for number in handled)),
        *("--shutdown-timeout", str(_shutdown_timeout(node))),
        # without a folder of ours torchrun leaves one behind for each run
        *("--log-dir", str(code_file.parent)),
        *("--module", "rlfactory.train.process"),
        *(*arguments.words(), EXIT_CODE, str(code_file)),
    ]


def _shutdown_timeout(node: Mapping[str, Any]) -> int:
    return math.ceil(float(node["timeout"])) + GRACE


@contextmanager
def _torchrun_surroundings(node: Mapping[str, Any]) -> Iterator[None]:
    """Set what torchrun reads from this process, and restore what it changes there."""
    environment, names = dict(os.environ), [*logging.root.manager.loggerDict, ELASTIC]
    levels = {n: logging.getLogger(n).level for n in names if n.startswith(ELASTIC)}
    # torch would take all cores in every rank, and torchrun one
    threads = max(1, (os.cpu_count() or 1) // node["processes"])
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    # one message of ours says how a run failed; of an attempt that is followed by another,
    # torchrun's log alone says which rank ended it
    for name in levels if "LOGLEVEL" not in environment else ():
        logging.getLogger(name).setLevel(logging.ERROR if node["restarts"] else logging.CRITICAL)
    try:
        # a signal before torchrun listens: there are no ranks yet
        with signal_handlers(lambda number, _: sys.exit(128 + number), SIGNALS):
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        os.environ.clear()
        os.environ.update(environment)


def _report_failure(failures: Mapping[int, Any], folder: RunFolder) -> None:
    """Name the ranks that ended a run, and give it the status `failed`.

    `failures` are torchrun's `ProcessFailure`s by rank, in the order in which it saw them.
    """
    first, *_ = failures.values()
    has_said = 0 in failures and failures[0].exitcode > 0  # rank 0, with what others have logged
    for rank, failure in failures.items():
        is_late = failure.timestamp - first.timestamp >= TORCHRUN_GRACE - 1
        if failure.exitcode == -signal.SIGKILL and is_late:
            print_error(f"process {rank} did not answer, and was killed")
        elif failure.exitcode < 0 and (failure is first or failure.exitcode != -signal.SIGTERM):
            print_error(f"process {rank} was ended by {signal.Signals(-failure.exitcode).name}")
        elif not has_said:
            reason = last_line(folder.path / f"log_rank{rank}.txt")
            if reason and "PeerLostError" not in reason:  # that is said of the lost rank itself
                print_error(f"process {rank} failed: {reason}")
    _mark(folder, "failed")


def _mark(folder: RunFolder, status: Status) -> None:
    """Set the status of a run that its ranks have left, unless all was done by then."""
    with suppress(OSError, RunFolderError):
        require_free(folder.path)  # another command that has the run may be why they failed
        if not folder.status.is_file() or folder.read_status() != "done":
            folder.set_status(status)


def _stopped(folder: RunFolder, number: int) -> int:
    """Mark a run that a signal has stopped before it trained; returns the exit code."""
    _mark(folder, "interrupted" if number == signal.SIGINT else "preempted")
    return 128 + number


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True
