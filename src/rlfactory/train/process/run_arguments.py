"""The arguments of a run's processes, which the launcher writes and the ranks read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

EXIT_CODE = "--exit-code-file"
FLAGS = {"--force": "force", "--take-over": "take_over", "--temporary": "temporary"}


@dataclass(frozen=True)
class RunArguments:
    """The arguments of a run's processes, the same for all ranks.

    Attributes:
        until: the iteration to stop after.
        force: the configuration may differ from that of the checkpoint.
        take_over: ignore a lock of which it is unknown whether its process lives.
        temporary: the folder is removed afterwards, so nothing is said of resuming the run.
    """

    run: Path
    until: int | None = None
    force: bool = False
    take_over: bool = False
    temporary: bool = False

    def words(self) -> list[str]:
        """The arguments as a command line, which `parse` reads."""
        until = [] if self.until is None else ["--until", str(self.until)]
        return [
            str(self.run),
            *until,
            *(flag for flag, name in FLAGS.items() if getattr(self, name)),
        ]

    @classmethod
    def parse(cls, argv: Sequence[str]) -> "RunArguments":
        """The arguments that `words` wrote; others may follow them."""
        until = int(argv[argv.index("--until") + 1]) if "--until" in argv else None
        given = {name: flag in argv for flag, name in FLAGS.items()}
        return cls(Path(argv[0]), until, **given)
