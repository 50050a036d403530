"""Which checkpoint was the best, by the held-out score."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from rlfactory.run.atomic import write_text
from rlfactory.run.scores import Scores

BEST_FILE = "best.json"


@dataclass
class Best:
    """Remembers the step with the highest mean of the score `main`, in a file beside the
    checkpoints. Where `kl` is given, only steps whose KL a token is at most that take part.
    """

    checkpoints: Path
    main: str
    kl: float | None = None
    score: float = -math.inf
    step: int | None = None

    def beaten_by(self, scores: Scores) -> bool:
        """Whether an evaluation is better than all before; NaN never is."""
        too_far = self.kl is not None and scores.kl > self.kl
        return not too_far and scores.means()[self.main] > self.score

    def take(self, step: int, scores: Scores) -> int | None:
        """Remember a step; returns the one that it takes the place of."""
        former, self.step = self.step, step
        self.score = scores.means()[self.main]
        content = {"step": step, self.main: self.score}
        write_text(self.checkpoints / BEST_FILE, json.dumps(content) + "\n")
        return former if former != step else None


def best_step(checkpoints: Path) -> int | None:
    """The step that was the best, None where a run has not kept it."""
    path = checkpoints / BEST_FILE
    return int(json.loads(path.read_text(encoding="utf-8"))["step"]) if path.is_file() else None
