"""Starts `server.py` and asks it for jobs."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
ENV = {"PYTHONPATH": str(HERE.parents[1] / "src"), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


class NoDeviceError(RuntimeError):
    """The pretended device can't work here; says why."""


class Pretended:
    """A process with the pretended device, which does one job after the other."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, str(HERE / "server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ENV,
            start_new_session=True,
        )
        hello = self._read()
        if "no_device" in hello:
            raise NoDeviceError(hello["no_device"])

    def _read(self) -> Any:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        assert line, "the server of the pretended device ended"
        return json.loads(line)

    def _ask(self, job: dict[str, Any]) -> Any:
        assert self._server.stdin is not None
        print(json.dumps(job), file=self._server.stdin, flush=True)
        return self._read()

    def measure(self, *words: str) -> dict[str, Any]:
        """What the second of two small iterations waits for; see `iteration.measure`."""
        found = self._ask({"measure": True, "words": words})
        assert found["codes"] == [0], found["said"]
        measured: dict[str, Any] = found["results"][0]
        return measured

    def command(
        self,
        words: Sequence[str],
        cwd: Path,
        processes: int = 1,
        env: Mapping[str, str] | None = None,
    ) -> Any:
        """`rlfactory WORDS` in a folder: `codes`, `results` (events) of all ranks, and `said`."""
        job = {"words": list(words), "cwd": str(cwd), "processes": processes, "env": env or {}}
        return self._ask(job)

    def close(self) -> None:
        """End the process."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.kill()
        self._server.wait()
