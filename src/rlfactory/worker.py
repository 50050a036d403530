"""A sitting of a run, once its plan is frozen: it reads the run folder and never Hydra."""

import logging
import os
import shlex
from contextlib import suppress
from pathlib import Path

import yaml

from rlfactory.build import Config, hardware_of
from rlfactory.estimate.exhausted import explained, is_exhaustion
from rlfactory.joining import joined, logs_of, told_apart
from rlfactory.mendable import MENDABLE
from rlfactory.older import filled, frozen_problems, newer
from rlfactory.ranks import is_many
from rlfactory.run.folder import RunFolder, RunFolderError, Status
from rlfactory.run.owner import owned
from rlfactory.run.requeue import requeue
from rlfactory.run.signals import Stop
from rlfactory.saying import say, say_error
from rlfactory.session import Session

log = logging.getLogger(__name__)


def read_config(folder: RunFolder) -> Config:
    """The frozen configuration of a run."""
    if not folder.config.is_file():
        raise RunFolderError(f"{folder.path} is no run folder: it holds no config.yaml")
    config: Config = yaml.safe_load(folder.config.read_text(encoding="utf-8"))
    if problems := frozen_problems(config):
        raise RunFolderError("; ".join(map(str, problems)))
    if lacking := newer(config):
        log.warning("config.yaml lacks %s: this version's defaults count", ", ".join(lacking))
    return filled(config)


def run(path: Path, until: int | None = None, force: bool = False, take_over: bool = False) -> int:
    """Train as the frozen configuration of `path` says, from its newest checkpoint if it has one;
    returns the exit code.
    """
    folder, stop = RunFolder(path), Stop()
    try:
        with stop, owned(path, take_over) as said:
            config = read_config(folder)
            folder.set_status("running")
            with folder.attach_log():
                if said:
                    log.warning("%s", said)
                status = _train(folder, config, stop, until, force)
            with suppress(OSError):
                folder.set_status(status)
    except KeyboardInterrupt:
        return stop.code
    except (RunFolderError, OSError) as error:  # nothing has begun
        say_error(str(error))
        return 1
    return 1 if status == "failed" else _ended(path, status, stop, config)


def _train(folder: RunFolder, config: Config, stop: Stop, until: int | None, force: bool) -> Status:
    """One sitting; the status that it leaves."""
    try:
        hardware = None
        if is_many(config["hardware"]):
            for old in logs_of(folder):
                old.unlink()
            hardware = hardware_of(config)
            joined(hardware, config, folder.path)
        outcome = Session(config, folder, until, force, stop, hardware).run()
        if hardware is not None:
            hardware.close()
    except KeyboardInterrupt:
        return stop.status
    except Exception as error:
        with suppress(OSError):  # it may be what failed
            folder.set_status("failed")
        log.exception("the run failed")
        error = told_apart(error, folder)
        out = is_exhaustion(error)
        if not out and not isinstance(error, MENDABLE):
            raise
        said = explained(error, config) if out else error
        say_error(f"{said}\nThe traceback is in {folder.log}")
        return "failed"
    return "interrupted" if outcome == "paused" else outcome


def _ended(path: Path, status: Status, stop: Stop, config: Config) -> int:
    """Say what became of a run that did not fail; the exit code."""
    if status == "done":
        return 0
    name = status if stop.asked else "paused"
    typed = f"rlfactory resume {shlex.quote(str(path))}"
    say(f"{name.capitalize()}; what there is so far is in {path}. To go on: {typed}")
    job = os.environ.get("SLURM_JOB_ID")
    if status == "preempted" and job and config["checkpoint"]["requeue"]:
        try:
            requeue(job)
        except RuntimeError as error:
            say(f"{error}; it is not in the queue again")
        else:
            say(f"job {job} is in the queue again")
            return 0
    return stop.code if stop.asked else 0
