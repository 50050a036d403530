"""Runs a program and its tests within limits; the program of a process that runs one of them.

It reads a JSON object from standard input: `code`, `tests` (texts of Python code), `token`,
`seconds`, `memory` in bytes. It writes `ready`, and after the tests the token with the number of
tests that passed. It imports nothing of this package, so that it starts quickly.

The limits stop accidents and simple tricks: endless loops, memory, files, connections, processes.
They are no wall against code that is written to break out of an interpreter.
"""

import builtins
import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

_FILE_BYTES, _OPEN_FILES = 2**20, 64
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_FORBIDDEN = (
    "socket.",
    "subprocess.",
    "os.fork",
    "os.exec",
    "os.spawn",
    "os.posix_spawn",
    "os.system",
    "os.kill",
    "ctypes.",
    "gc.get_",
    "signal.",
    "os.setrlimit",
    "resource.",
    "pty.",
    "syslog.",
)
_CHANGES_FILES = (
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.chown",
    "os.truncate",
    "os.mkdir",
    "shutil.",
)


def main() -> None:
    """Read the request, limit this process, run the code, then each test."""
    request = json.loads(sys.stdin.read())
    report = os.fdopen(os.dup(1), "w")
    silence()
    limit(request["seconds"], request["memory"])
    leave_network()
    sys.addaudithook(guard(os.path.realpath(os.getcwd())))
    report.write("ready\n")
    report.flush()
    passed = run(request["code"], request["tests"])
    report.write(f"{request['token']} {passed}\n")
    report.flush()
    os._exit(0)


def silence() -> None:
    """Nothing is read from this process's input, and what it prints is lost."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)


def limit(seconds: float, memory: int) -> None:
    """The kernel's limits on time, memory, files; the alarm ends the process."""
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: int(seconds) + 1,
        resource.RLIMIT_FSIZE: _FILE_BYTES,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    for name, value in limits.items():
        resource.setrlimit(name, (value, value))
    signal.setitimer(signal.ITIMER_REAL, seconds)


def leave_network() -> bool:
    """Enter a network of this process alone, where the kernel allows it."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0)


def guard(folder: str) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that refuses connections, processes, and changes of files outside `folder`."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event.startswith(_FORBIDDEN):
            raise PermissionError(f"{event} is not allowed here")
        if event.startswith(_CHANGES_FILES):
            require_inside(folder, args)
        if event == "open" and is_writing(*args):
            require_inside(folder, args[:1])

    return hook


def is_writing(path: Any, mode: Any, flags: int) -> bool:
    """Whether a file is opened to be changed."""
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND))


def require_inside(folder: str, args: tuple[Any, ...]) -> None:
    """PermissionError where one of an event's paths is outside a folder."""
    for path in (os.fsdecode(arg) for arg in args if isinstance(arg, str | bytes)):
        place = os.path.realpath(path)
        if place != os.devnull and not f"{place}/".startswith(f"{folder}/"):
            raise PermissionError(f"{place} is not in this process's own folder")


def run(code: str, tests: list[str]) -> int:
    """The number of tests that raise nothing after the code; 0 where the code itself raises."""
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    if not raises_nothing(code, names):
        return 0
    return sum(raises_nothing(test, names) for test in tests)


def raises_nothing(code: str, names: dict[str, Any]) -> bool:
    """Whether code runs to its end."""
    try:
        exec(compile(code, "<program>", "exec"), names)
    except BaseException:  # SystemExit too: a program that leaves does not pass
        return False
    return True


if __name__ == "__main__":
    main()
