"""Runs that are stopped by a signal at a named moment, each attempt a process forked off this one.

It runs in a process of `warm_process`, and prints one JSON object an attempt. Not a test by itself.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from faulty.accidents import unadorned

from rlfactory.cli import app  # noqa: F401  (imported once, for all runs)
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm.attention import GPT2Step
from rlfactory.model.sd3 import SD3
from rlfactory.run.checkpoint import save
from rlfactory.run.folder import RunFolder
from rlfactory.run.progress import Progress
from rlfactory.train import session  # noqa: F401  (imported once, for all runs)
from rlfactory.train.learner import Learner
from rlfactory.train.process import worker  # noqa: F401  (imported once, for all runs)

PHASES = ("sample", "learn", "evaluate", "saving")


class Moment:
    """Sends `signals` in the second iteration, in the middle of a phase's network pass or of a
    checkpoint's writing, and counts the passes that follow.
    """

    def __init__(self, phase: str, report: Path, signals: list[int]) -> None:
        self.wanted, self.report, self.signals = phase, report, signals
        self.phase, self.rounds, self.passes = "", 0, 0
        self.sent: float | None = None
        self.later = self.updates = 0

    def update(self) -> None:
        self.updates += 1
        self.passes = 2  # the next one is the third

    def send(self) -> None:
        self.sent = time.monotonic()
        for number in self.signals:
            os.kill(os.getpid(), number)

    def begin(self, name: str) -> None:
        self.phase, self.passes = name, 0
        self.rounds += name == "sample"

    def pass_(self) -> None:
        self.passes += 1
        if self.sent is not None:
            self.later += 1
        elif self.phase == self.wanted and self.rounds == 2 and self.passes == 3:
            if self.wanted == "learn":
                assert self.updates == 3, "that of the first iteration and one of the second"
            self.send()

    def saved(self) -> None:
        seconds = None if self.sent is None else time.monotonic() - self.sent
        self.report.write_text(json.dumps({"seconds": seconds, "passes": self.later}))


def after(owner: Any, name: str, call: Callable[..., None], before: bool = False) -> None:
    former = getattr(owner, name)

    def both(*arguments: Any, **named: Any) -> Any:
        if before:
            call(*arguments)
        found = former(*arguments, **named)
        if not before:
            call(*arguments)
        return found

    setattr(owner, name, both)


def watch(moment: Moment) -> None:
    """Have the product tell what it does."""
    after(Progress, "phase", lambda _, name, **__: moment.begin(name))
    for owner, name in ((SD3, "_predict"), (CausalLM, "_hidden"), (GPT2Step, "__call__")):
        after(owner, name, lambda *_: moment.pass_())
    after(Learner, "_update", lambda _: moment.update())
    after(RunFolder, "set_status", lambda _, status: status == "preempted" and moment.saved())
    if moment.wanted == "saving":

        def write(folder: Path, about: object) -> None:
            if folder.name == ".step_000002" and moment.sent is None:
                moment.send()

        after(save, "write_manifest", write, before=True)


def attempt(words: list[str], prepare: Callable[[], None] = lambda: None) -> tuple[int, str]:
    """A command in a process of its own: its exit code and what it said."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # makes torch's pool anew; two threads at once would fail
        os.close(read)
        os.dup2(write, 1)
        os.dup2(write, 2)
        sys.argv, code = ["rlfactory", *words], 1
        unadorned()
        try:
            prepare()
            app.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        said = file.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def main(folder: Path, words: list[str]) -> None:
    os.environ.pop("SLURM_JOB_ID", None)
    # a shell has what it runs in the background ignore it, and so would a run
    signal.signal(signal.SIGINT, signal.default_int_handler)
    every = ["checkpoint.every=1", "checkpoint.keep=null"]
    # a thread could be so late that the run has ended
    in_the_loop = "checkpoint.background=false"
    code, said = attempt([f"run_dir={folder / 'whole'}", *words, *every])
    assert code == 0, said
    for phase in (*PHASES, "twice"):
        run, report = folder / phase, folder / f"{phase}.json"
        signals = [signal.SIGTERM, signal.SIGINT] if phase == "twice" else [signal.SIGTERM]
        moment = Moment("sample" if phase == "twice" else phase, report, signals)
        typed = [
            f"run_dir={run}",
            *words,
            *([*every, in_the_loop] if phase == "saving" else ["checkpoint.every=0"]),
        ]
        code, said = attempt(typed, lambda moment=moment: watch(moment))
        status = RunFolder(run).read_status()
        told = json.loads(report.read_text()) if report.exists() else {}
        kept = sorted(p.name for p in RunFolder(run).checkpoints.glob("step_*"))
        # both ways of going on
        again, more = attempt(["resume", str(run)] if phase in ("sample", "saving") else typed)
        result = {"phase": phase, "code": code, "status": status, "kept": kept, "again": again}
        print(json.dumps(result | told | {"said": said, "more": more}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
