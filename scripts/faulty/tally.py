"""What came of many attempts: how many passed, and what was wrong with the others."""

from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts of one kind of trial; `failures` tell each that did not pass, `notes` are figures."""

    attempted: int = 0
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def show(self) -> str:
        """Some lines for the screen, failures last."""
        lines = [f"{self.passed} of {self.attempted} passed"]
        lines += [f"  {name}: {value}" for name, value in self.notes.items()]
        lines += [f"  FAILED {failure}" for failure in self.failures]
        return "\n".join(lines)
