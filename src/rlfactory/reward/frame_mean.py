"""An image reward of videos: its mean over frames."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, Samples, require_videos, score_checked
from rlfactory.utils.images import evenly_spaced


class FrameMean(Reward):
    """Each score of an image reward, averaged over `frames` evenly spaced frames of a video.

    The first and the last frame are among them. A video has the scores of those of its frames that
    have one, and NaN without any.
    """

    media = "videos"

    def __init__(self, reward: Reward, frames: int) -> None:
        self.reward, self.frames = reward, frames
        self.main = reward.main
        self.metadata, self.better = reward.metadata, reward.better  # type: ignore[misc]
        self.best_score = reward.best_score  # type: ignore[misc]

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """Check what the image reward requires."""
        self.reward.check_prompts(prompts)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`."""
        videos = require_videos(samples)
        chosen = evenly_spaced(videos.shape[1], self.frames)
        count = len(chosen)
        images = Samples(
            prompts=[prompt for prompt in samples.prompts for _ in range(count)],
            metadata=[row for row in samples.metadata for _ in range(count)],
            groups=samples.groups.repeat_interleave(count),
            images=videos[:, chosen].flatten(0, 1),
        )
        scores = score_checked(self.reward, images)
        return {name: values.view(-1, count).nanmean(1) for name, values in scores.items()}

    def state_dict(self) -> dict[str, Any]:
        """The image reward's."""
        return self.reward.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the image reward's."""
        self.reward.load_state_dict(state)
