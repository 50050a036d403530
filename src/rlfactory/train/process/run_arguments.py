"""The arguments of a run's processes, which the launcher writes and the ranks read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

EXIT_CODE = "--exit-code-file"


@dataclass(frozen=True)
class RunArguments:
    """The arguments of a run's processes, the same for all ranks.

    Attributes:
        until: the iteration to stop after.
        force: the configuration may differ from that of the checkpoint.
        take_over: ignore a lock of which it is unknown whether its process lives.
    """

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
