"""How much moves in a video, and how unsteadily, from pixels alone."""

from torch import Tensor

from rlfactory.reward.base import Reward, Samples, require_videos


class Motion(Reward):
    """`motion`: the mean absolute change of a pixel from one frame to the next, in [0, 1].

    `flicker`, reported only: the mean absolute second difference over three frames, in [0, 2],
    which steady motion keeps low and noise does not. A video of fewer frames than that has 0.
    The reward alone is maximal for frames that alternate between black and white, so it belongs
    beside another one, with a small weight.
    """

    media = "videos"
    main = "motion"
    better = {"flicker": "lower"}

    def score(self, samples: Samples) -> dict[str, Tensor]:
        videos = require_videos(samples).float() / 255
        change = videos.diff(dim=1)
        return {"motion": _mean(change), "flicker": _mean(change.diff(dim=1))}


def _mean(differences: Tensor) -> Tensor:
    """The mean absolute value `[B]` of `[B, n, ...]`; 0 where n is 0."""
    count = max(differences[0].numel(), 1)
    return differences.abs().flatten(1).sum(1) / count
