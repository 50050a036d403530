"""One rank of a run, as torchrun starts it: `python -m rlfactory.train.process RUN ...`."""

import faulthandler
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rlfactory.train.process.run_arguments import EXIT_CODE, RunArguments
from rlfactory.utils.console import guard_output, print_status
from rlfactory.utils.current_folder import leave_current_folder
from rlfactory.utils.processes import (
    SIGNALS,
    exit_at_once,
    rare_collection,
    terminate_with_parent,
)


@rare_collection()
def main(argv: Sequence[str]) -> int:
    """Train; returns 0 also where the run was asked to stop, since torchrun takes all else for a
    failure: it would end the ranks that still save, or start them again. Rank 0 leaves the run's
    exit code in a file for `launch`.
    """
    terminate_with_parent(os.getppid())
    faulthandler.enable()  # an abort in torch's threads then says where Python was
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # until training handles it, Ctrl-C ends this process without a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    leave_current_folder()
    guard_output()
    code_file = Path(argv[argv.index(EXIT_CODE) + 1]) if os.environ["RANK"] == "0" else None
    if code_file is not None:
        code_file.unlink(missing_ok=True)  # of an attempt before this one
        _report_restart()
    from rlfactory.train.process import worker  # takes seconds to import

    if code_file is not None:
        code_file.touch()  # training has begun, and may have something to lose
    code = worker.run_rank(RunArguments.parse(argv))
    if code_file is not None:
        code_file.write_text(str(code), encoding="utf-8")
    return 0 if code - 128 in SIGNALS else code


def _report_restart() -> None:
    count = os.environ["TORCHELASTIC_RESTART_COUNT"]
    if count != "0":
        newest = "starting all processes again, from the newest checkpoint"
        print_status(f"{newest}; restart {count} of {os.environ['TORCHELASTIC_MAX_RESTARTS']}")


if __name__ == "__main__":
    exit_at_once(main(sys.argv[1:]))
