"""Which checkpoint was the best, by the held-out score."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory.run.atomic import write_text
from rlfactory.run.checkpoint import checkpoint_of
from rlfactory.run.scores import Scores

BEST_FILE = "best.json"


@dataclass
class Best:
    """Remembers the step with the highest mean of the score `main`; `write` names it in a file
    beside the checkpoints. Where `kl` is given, only steps whose KL a token is at most that take
    part.
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

    def take(self, step: int, scores: Scores) -> None:
        """Remember a step."""
        self.step, self.score = step, scores.means()[self.main]

    def write(self) -> None:
        """Name the step in the file, if its checkpoint is there; else leave no file."""
        path = self.checkpoints / BEST_FILE
        if self.step is None or not checkpoint_of(self.checkpoints, self.step).is_dir():
            path.unlink(missing_ok=True)
            return
        content = {"step": self.step, self.main: self.score}
        write_text(path, json.dumps(content) + "\n")

    def state_dict(self) -> dict[str, Any]:
        """The step and its score."""
        return {"step": self.step, "score": self.score}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.step, self.score = state["step"], state["score"]


def best_step(checkpoints: Path) -> int | None:
    """The step that was the best, None where a run has not kept it."""
    path = checkpoints / BEST_FILE
    return int(json.loads(path.read_text(encoding="utf-8"))["step"]) if path.is_file() else None
