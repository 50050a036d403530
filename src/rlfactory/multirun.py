"""Several runs from one command: Hydra's own command line, with a run folder for each job."""

import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from rlfactory import _hydra, completion
from rlfactory._hydra import Composed
from rlfactory.multirun_problems import impossible_sweep, sweep_problems
from rlfactory.parted import loosened, with_parts
from rlfactory.problems import PlanError, report
from rlfactory.request import searched, with_own_targets

MANY = {"-m", "--multirun"}


def hydra_command(argv: Sequence[str], launch: Callable[[Composed], int]) -> int:
    """Do what Hydra's flags say (`-m`, `--cfg`, ...); `launch` runs a job and returns its code.

    What is misspelt is said before the first job begins; a job that fails leaves the others be.
    """
    asked = completion.FLAGS & {*argv}
    if asked and completion.complete(argv):
        return 0
    # what completion is asked for is no override
    words = [] if asked else [w for w in argv if "=" in w and w[0] != "-"]
    if problems := sweep_problems(words) or (impossible_sweep(words) if MANY & {*argv} else []):
        raise PlanError(problems)
    failed: list[str] = []
    places = searched(words)

    def job(composed: Composed, overrides: list[str], sweep: Path) -> None:
        name = re.sub(r"[^\w=.,+-]+", "_", ",".join(overrides)) or "default"
        composed = with_parts(with_own_targets(composed, overrides), places)
        composed.values["run_dir"] = str(sweep / name)
        try:
            code = launch(composed)
        except PlanError as error:
            print(report(error.problems, overrides), file=sys.stderr)
            code = 2
        except Exception:  # a defect of one job, which the others should not pay for
            traceback.print_exc()
            code = 1
        if code == 130:
            raise KeyboardInterrupt
        if code > 128:  # the machine is about to go: no time for another job
            sys.exit(code)
        if code:
            failed.append(f"{name} (exit code {code})")

    _hydra.main(job, [*map(loosened, argv)])
    if failed:
        print("failed: " + ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0
