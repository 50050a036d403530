"""Trains the run of a folder, in one process or as one rank of several.

The plan is frozen by then: this reads the run folder and never Hydra.
"""

import gc
import logging
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TextIO, cast

import torch

from rlfactory.config.frozen import frozen_file_problems, read_frozen
from rlfactory.hardware.base import AllRanksError, Hardware, PeerLostError
from rlfactory.hardware.process_environment import is_distributed
from rlfactory.hardware.torch_defaults import torch_defaults
from rlfactory.run.disk_errors import OF_DISK, explain_disk_errors
from rlfactory.run.folder import RunFolder, RunFolderError, Status
from rlfactory.run.lock import owned
from rlfactory.run.log_file import attach_log
from rlfactory.train.build import build_hardware
from rlfactory.train.listeners import Listener
from rlfactory.train.process.begun_code import untrusted_code
from rlfactory.train.process.ranks import as_peer_lost, logs_of, require_same_config
from rlfactory.train.process.run_arguments import RunArguments
from rlfactory.train.process.signals import Stop
from rlfactory.train.session import Session
from rlfactory.utils.console import Guarded, print_error, print_status
from rlfactory.utils.dotted_keys import Config
from rlfactory.utils.errors import UserError, explained
from rlfactory.utils.processes import SIGNALS, signal_handlers

log = logging.getLogger(__name__)

REQUEUE_SECONDS = 60


def read_config(folder: RunFolder) -> Config:
    """The frozen configuration of a run; RunFolderError where it can't be read or trained."""
    if not folder.config.exists():
        raise RunFolderError(f"{folder.path} is no run folder: it holds no config.yaml")
    folder.require_separate_parts()
    config: Config = read_frozen(folder.config)
    if problems := frozen_file_problems(config) or untrusted_code(folder, config):
        raise RunFolderError(f"{folder.config}: {'; '.join(map(str, problems))}")
    return config


def run_rank(arguments: RunArguments) -> int:
    """Train as the rank that torchrun made this process; returns the exit code."""
    if os.environ["RANK"] == "0":
        return run_main_process(arguments)
    config = read_config(RunFolder(arguments.run))
    return run_non_main_process(arguments.run, config, arguments.until, arguments.force)


def run_main_process(arguments: RunArguments) -> int:
    """Train a run, from its newest checkpoint if it has one; returns the exit code."""
    # the user's code may change the current folder
    folder, stop = RunFolder(arguments.run.absolute()), Stop(quiet=arguments.temporary)
    try:
        with _begun(folder, stop, arguments.take_over) as (config, at_end):
            try:
                status = _train(folder, config, stop, at_end, arguments.until, arguments.force)
            except Exception as error:
                _report_error(error, folder, config)
                return 1
            with suppress(OSError):
                folder.set_status(status)
    except KeyboardInterrupt:
        return stop.code
    except (UserError, OSError) as error:  # nothing has begun
        print_error(str(error))
        return 1
    with signal_handlers(signal.SIG_IGN, SIGNALS):  # it ends anyway, and says how to resume
        return report_end(folder, status, stop, config)


def train_in_python(
    path: Path, until: int | None = None, force: bool = False, listeners: Sequence[Listener] = ()
) -> Status:
    """Train the run of `path` in this process for a Python caller; returns its status then.

    Like the command, but errors are raised. Ctrl-C (in a notebook: interrupting the kernel) saves
    and returns `interrupted`.
    """
    folder, stop = RunFolder(path), Stop()
    shown = redirect_stdout(cast(TextIO, Guarded(sys.stdout)))
    with torch_defaults(), shown, _begun(folder, stop) as (config, at_end):
        try:
            status = _train(folder, config, stop, at_end, until, force, listeners)
        except Exception as error:
            raise explained(error, folder.log)  # noqa: B904 - it has its cause
        folder.set_status(status)
    gc.collect()  # a session and its model are in cycles: the next call may need the memory
    return status


@contextmanager
def _begun(
    folder: RunFolder, stop: Stop, take_over: bool = False
) -> Iterator[tuple[Config, ExitStack]]:
    """Own a run, which has its log and the status `running` then; yields its configuration, and
    what is to be closed after it.
    """
    with stop, owned(folder.path, take_over) as former_owner:
        config = read_config(folder)
        folder.set_status("running")
        with attach_log(folder), ExitStack() as at_end:
            if former_owner:
                log.warning("%s", former_owner)
            yield config, at_end


def run_non_main_process(
    path: Path | None, config: Config, until: int | None = None, force: bool = False
) -> int:
    """Train as a rank other than 0, which writes a log if it has an error, and prints nothing.

    Without a `path`, rank 0 sends that of the run folder. Returns the exit code.
    """
    stop, folder = Stop(quiet=True), None
    try:
        with stop:
            hardware = build_hardware(config)
            folder = RunFolder(require_same_config(hardware, config, path).absolute())
            with attach_log(folder, hardware.rank):
                outcome = Session(config, folder, until, force, stop, hardware).run()
            hardware.close()
    except KeyboardInterrupt:
        return stop.code
    except Exception as error:
        # with a folder, rank 0 reports what is in our log; an error of all ranks it has as well
        if folder is None and not isinstance(as_peer_lost(error), AllRanksError | PeerLostError):
            print_error(f"in process {os.environ.get('RANK', '?')}: {error}")
        return 1
    return 0 if outcome in ("done", "paused") else stop.code


def _train(
    folder: RunFolder,
    config: Config,
    stop: Stop,
    at_end: ExitStack,
    until: int | None,
    force: bool,
    listeners: Sequence[Listener] = (),
) -> Status:
    """Train until the end or a stop, and return the run's status; after an error it is `failed`."""
    is_alone = not is_distributed(config["hardware"])
    try:
        for old in [] if is_alone else logs_of(folder):
            old.unlink()
        hardware = build_hardware(config)
        with _closed(hardware):
            log.info("computing on %s", device_name(hardware))
            if not is_alone:
                require_same_config(hardware, config, folder.path)
            # what is drawn at the end has no block of its own that says what could not be written
            with explain_disk_errors(folder.path, "a file of the run", numbers=OF_DISK):
                session = Session(config, folder, until, force, stop, hardware, listeners)
                # also after an error: the next run of this process would have its service's run
                at_end.callback(session.logger.finish)
                return session.run()
    except KeyboardInterrupt:
        return stop.status
    except Exception as error:
        if stop.has_interrupted:
            # a library that is interrupted in the middle of an import has an error of its own
            log.warning("an error after the run was asked to stop", exc_info=error)
            return stop.status
        stop.hold_back()
        with suppress(OSError):  # it may be what failed
            folder.set_status("failed")
        log.exception("the run failed")
        raise as_peer_lost(error, folder)  # noqa: B904 - it has its cause


@contextmanager
def _closed(hardware: Hardware) -> Iterator[None]:
    """Close the hardware at the end; after an error only where no other process may be lost."""
    try:
        yield
    except BaseException:
        if hardware.world_size == 1:
            hardware.close()
        raise
    hardware.close()


def device_name(hardware: Hardware) -> str:
    """The device of this process in words, and how many processes there are."""
    device = hardware.device
    name = f"the CPU with {torch.get_num_threads()} threads"
    if device.type == "cuda":
        name = f"{torch.cuda.get_device_name(device)} ({device})"
    return name if hardware.world_size == 1 else f"{name}, as 1 of {hardware.world_size} processes"


def _report_error(error: Exception, folder: RunFolder, config: Config) -> None:
    """Print an error that users can act on; raise any other."""
    # what plans memory is needed by a failed run alone
    from rlfactory.config.memory.devices import is_out_of_memory

    if is_out_of_memory(error):
        from rlfactory.config.memory.peak_memory import explain_out_of_memory

        error = UserError(explain_out_of_memory(error, config))
    error = explained(error, folder.log)
    if not isinstance(error, UserError | OSError):
        raise error
    where = "" if isinstance(error, UserError) else f"\nThe traceback is in {folder.log}"
    print_error(f"{error}{where}")


def report_end(folder: RunFolder, status: Status, stop: Stop, config: Config) -> int:
    """Print how to resume a run that was stopped, unless it is quiet; returns the exit code."""
    if status == "done":
        return 0
    code = stop.code if stop.is_requested else 0
    if stop.quiet:
        return code
    name = (status if stop.is_requested else "paused").capitalize()
    typed = f"rlfactory resume {shlex.quote(str(folder.path))}"
    if folder.has_checkpoint:
        print_status(f"{name}; the run so far is saved in {folder.path}. To resume: {typed}")
    else:
        print_status(f"{name} before the first checkpoint: nothing is saved. To begin: {typed}")
    job = os.environ.get("SLURM_JOB_ID")
    if status == "preempted" and job and config["checkpoint"]["requeue"]:
        try:
            requeue(job)
        except RuntimeError as error:
            print_status(f"{error}; it is not in the queue again")
        else:
            print_status(f"job {job} is in the queue again")
            return 0
    return code


def requeue(job: str) -> None:
    """Put a preempted SLURM job back into the queue; RuntimeError with SLURM's reason if not."""
    command = ["scontrol", "requeue", job]
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=REQUEUE_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip()
        raise RuntimeError(f"{' '.join(command)} failed: {reason}") from error
