"""Starts a run's processes on this machine, and watches over them; knows no torch."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rlfactory.problems import PlanError, Problem
from rlfactory.ranks import Place, is_many, is_to_launch, variables

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
STOPPED = frozenset(128 + number for number in HEARD)
"""Exit codes of processes that were asked to stop, and have saved."""
HOST = "127.0.0.1"
GLANCE = 0.1
GRACE = 5.0
"""Seconds beyond `hardware.timeout` that processes have to notice that one of them is gone."""


@dataclass(frozen=True)
class Sitting:
    """What the processes of a run are told."""

    run: Path
    until: int | None = None
    force: bool = False
    take_over: bool = False

    def words(self) -> list[str]:
        """As a command line."""
        flags = [("--force", self.force), ("--take-over", self.take_over)]
        until = [] if self.until is None else ["--until", str(self.until)]
        return [str(self.run), *until, *(flag for flag, given in flags if given)]


def sit(sitting: Sitting, config: Mapping[str, Any]) -> int:
    """Train here, or in as many processes as are asked for; the exit code."""
    if is_to_launch(config["hardware"]):
        return launch(sitting, config["hardware"])
    from rlfactory import worker

    return worker.run(sitting.run, sitting.until, sitting.force, sitting.take_over)


def require_possible(config: Mapping[str, Any]) -> None:
    """PlanError where the processes that are asked for can't be started."""
    node = config["hardware"]
    if not is_many(node) and (count := int(os.environ.get("WORLD_SIZE", "1"))) > 1:
        message = f"is for one process, and a launcher has started {count}"
        several = f"hardware=ddp hardware.processes={count}"
        raise PlanError([Problem("hardware", f"{message}; type {several}", "hardware=ddp")])
    if not is_to_launch(node):
        return
    if node["launcher"] == "slurm":
        message = "is slurm, and this is no task of srun's; type srun before the command"
        raise PlanError([Problem("hardware.launcher", message, "hardware.launcher=auto")])
    if node["port"] is not None and not _is_free(node["port"]):
        message = f"is {node['port']}, which is in use on this machine; null takes one that is free"
        raise PlanError([Problem("hardware.port", message, "hardware.port=null")])


def launch(sitting: Sitting, node: Mapping[str, Any]) -> int:
    """Run all processes to their end, again and again where one fails and `restarts` are left."""
    team = _Team(sitting, node)
    former = {number: signal.signal(number, team.hear) for number in HEARD}
    try:
        for left in range(node["restarts"], -1, -1):
            code = team.run()
            if not team.failed or team.asked or not left:
                break
            _say(f"starting all processes again, from the newest checkpoint; {left - 1} more times")
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    return code


class _Team:
    """The processes of a sitting; `asked` is the last signal that they were sent on."""

    def __init__(self, sitting: Sitting, node: Mapping[str, Any]) -> None:
        self.sitting, self.node = sitting, node
        self.asked = 0
        self.failed = False
        self._members: list[subprocess.Popen[bytes]] = []
        self._silent: list[int] = []

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Tell all of them: who is in a group of its own does not hear the keyboard."""
        del frame
        self.asked = number
        for member in self._members:
            if member.poll() is None:
                member.send_signal(number)

    def run(self) -> int:
        """From their start to the end of the last; the exit code of the first one, or 1."""
        port = self.node["port"] or _free_port()
        count = self.node["processes"]
        self._members = [self._begin(Place(i, count, i, HOST, port)) for i in range(count)]
        self._silent = []
        try:
            return self._watch()
        finally:
            self._end()

    def _begin(self, here: Place) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "rlfactory.rank", *self.sitting.words()]
        threads = max(1, (os.cpu_count() or 1) // here.world)
        env = {"OMP_NUM_THREADS": str(threads), **os.environ, **variables(here)}
        return subprocess.Popen(words, env=env, start_new_session=True)

    def _watch(self) -> int:
        end: float | None = None
        while any(member.poll() is None for member in self._members):
            time.sleep(GLANCE)
            if end is None and (self._lost() or self._members[0].poll() is not None):
                end = time.monotonic() + self.node["timeout"] + GRACE
            if end is not None and time.monotonic() > end:
                self._silent = [i for i, m in enumerate(self._members) if m.poll() is None]
                self._end()
        lost = self._lost()
        self.failed = bool(lost)
        for rank, code in lost:
            if rank in self._silent:
                _say(f"error: process {rank} did not answer, and was ended")
            elif code < 0:
                _say(f"error: process {rank} was ended by {signal.Signals(-code).name}")
        first = self._members[0].returncode
        return max(first, 1) if lost else first

    def _lost(self) -> list[tuple[int, int]]:
        """Rank and code of those that ended as none should."""
        codes = [(rank, member.poll()) for rank, member in enumerate(self._members)]
        return [(rank, code) for rank, code in codes if code and code not in STOPPED]

    def _end(self) -> None:
        for member in self._members:
            if member.poll() is None:
                member.kill()
            member.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def words_of(argv: Sequence[str]) -> Sitting:
    """What `Sitting.words` wrote."""
    until = int(argv[argv.index("--until") + 1]) if "--until" in argv else None
    return Sitting(Path(argv[0]), until, "--force" in argv, "--take-over" in argv)
