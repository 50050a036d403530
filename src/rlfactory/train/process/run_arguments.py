"""Arguments and stop signals of a run's processes, shared by the launcher and the ranks.

Imports no torch.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that ask a run to stop; torchrun passes them on to all ranks."""
STOPPED = frozenset(128 + number for number in SIGNALS)
"""Exit codes of a process that saved and stopped because it was asked to."""
EXIT_CODE = "--exit-code-file"


@dataclass(frozen=True)
class RunArguments:
    """The arguments of a run's processes, the same for all ranks."""

    run: Path
    until: int | None = None
    force: bool = False
    take_over: bool = False

    def words(self) -> list[str]:
        """The arguments as a command line, which `parse` reads."""
        flags = [("--force", self.force), ("--take-over", self.take_over)]
        until = [] if self.until is None else ["--until", str(self.until)]
        return [str(self.run), *until, *(flag for flag, given in flags if given)]

    @classmethod
    def parse(cls, argv: Sequence[str]) -> "RunArguments":
        """The arguments that `words` wrote; others may follow them."""
        until = int(argv[argv.index("--until") + 1]) if "--until" in argv else None
        return cls(Path(argv[0]), until, "--force" in argv, "--take-over" in argv)
