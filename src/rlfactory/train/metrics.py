"""Diversity of samples, the accumulator that averages metrics of updates, the first ratio."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from rlfactory.utils.errors import TrainingError
from rlfactory.utils.pytree import to_device

THUMBNAIL = 64
"""Pixels per side at most of the images that `pairwise_distance` compares."""
_CHUNK = 16  # images of which thumbnails are made at once: 0.2 GB of 1,024 pixels a side


def diversity(
    images: Tensor | None,
    texts: Sequence[str] | None,
    groups: Tensor,
    device: torch.device | None = None,
) -> float:
    """`pairwise_distance` of images; `distinct` word pairs of texts."""
    if images is not None:
        return pairwise_distance(images, groups, device)
    return distinct(texts or [], 2)


def distinct(texts: Sequence[str], n: int) -> float:
    """Distinct-n: the share of distinct n-grams of words (arXiv 1510.03055); NaN where none are."""
    grams = [
        tuple(words[i : i + n])
        for words in (text.lower().split() for text in texts)
        for i in range(len(words) - n + 1)
    ]
    return len(set(grams)) / len(grams) if grams else float("nan")


def pairwise_distance(images: Tensor, groups: Tensor, device: torch.device | None = None) -> float:
    """The mean root-mean-square pixel distance, in [0, 1], of all pairs within a group.

    Of images larger than `THUMBNAIL` it is the distance of thumbnails: in full, 24 images of 512
    pixels would take as long as a sampling step.

    Args:
        images: `[B, 3, H, W]` uint8; a video's frames, `[B, F, 3, H, W]`, are compared one by one.
        groups: `[B]`, on the CPU.
        device: where thumbnails are made and compared; None: where the images are.

    Returns:
        The mean over the pairs of all groups; NaN where no group has two images.
    """
    small = _thumbnails(images.flatten(1, -3), device or images.device)
    pixels = small.flatten(1)[to_device(groups.argsort(stable=True), small.device)]
    sizes = torch.bincount(torch.unique(groups, return_inverse=True)[1]).tolist()
    members = torch.split(pixels, sizes)
    distances = torch.cat([torch.pdist(rows.float() / 255) for rows in members])
    return float(distances.mean()) / float(pixels.shape[1] ** 0.5)


def _thumbnails(images: Tensor, device: torch.device) -> Tensor:
    """Images as they are, or the means over the pixels of each of `THUMBNAIL`² cells."""
    if max(images.shape[-2:]) <= THUMBNAIL:
        return images
    size = (min(images.shape[-2], THUMBNAIL), min(images.shape[-1], THUMBNAIL))
    chunks = (to_device(chunk, device) for chunk in torch.split(images, _CHUNK))
    return torch.cat([adaptive_avg_pool2d(chunk.float(), size) for chunk in chunks])


class MetricAccumulator:
    """Tensors of values by name, kept on their device, since reading a value waits for it."""

    def __init__(self) -> None:
        self._values: dict[str, list[Tensor]] = defaultdict(list)

    def add(self, name: str, value: float) -> None:
        """Add a value."""
        self._values[name].append(torch.tensor([value]))

    def extend(self, values: Mapping[str, Tensor]) -> None:
        """Add a tensor of values under each name; each element counts once in the mean."""
        for name, tensor in values.items():
            self._values[name].append(tensor.reshape(-1))

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __len__(self) -> int:
        """The number of names."""
        return len(self._values)

    def latest(self, name: str) -> float | None:
        """The mean of the newest tensor of a name, None if there is none."""
        return self.latest_of(name).get(name)

    def latest_of(self, prefix: str) -> dict[str, float]:
        """`latest` of all names with a prefix."""
        newest = {k: v[-1] for k, v in self._values.items() if k.startswith(prefix)}
        return _read({name: values.float().mean() for name, values in newest.items()})

    def largest(self, name: str) -> float:
        """The largest value of a name."""
        return float(torch.cat(self._values[name]).max())

    def means(self) -> dict[str, float]:
        """The mean of each name, or the maximum of one with `max_` in it."""
        joined = {name: torch.cat(values) for name, values in self._values.items()}
        return _read(
            {name: v.max() if "max_" in name else v.float().mean() for name, v in joined.items()}
        )


def _read(scalars: Mapping[str, Tensor]) -> dict[str, float]:
    """The values of scalar tensors, with one wait for each device that they are on."""
    by_device: dict[torch.device, list[str]] = defaultdict(list)
    for name, scalar in scalars.items():
        by_device[scalar.device].append(name)
    found = {
        name: value
        for names in by_device.values()
        for name, value in zip(
            # exact: float64 holds every float32 and float64
            names,
            torch.stack([scalars[name].double() for name in names]).tolist(),
            strict=True,
        )
    }
    return {name: found[name] for name in scalars}


def check_initial_ratio(
    metrics: MetricAccumulator, tolerance: float | None, remedy: str = "precision=fp32"
) -> None:
    """Check that before the first update likelihoods are those recorded while sampling.

    Records the largest deviation of a ratio from 1 as `ratio/first_max_dev`. Does nothing where
    `tolerance` is None, as for algorithms without a ratio. `remedy` is what the error advises.

    Raises:
        TrainingError: it is larger than `tolerance`, so sampling and training disagree; or the
            algorithm's loss returned no ratios to check.
    """
    if tolerance is None:
        return
    if "ratio/max_dev" not in metrics:
        raise TrainingError(
            "the algorithm's loss returned no metric ratio/max_dev, which its ratio_tolerance"
            " limits; add ratio_metrics(ratio, clip_range) to the metrics, or set ratio_tolerance"
            " to None"
        )
    deviation = metrics.largest("ratio/max_dev")
    metrics.add("ratio/first_max_dev", deviation)
    if deviation > tolerance:
        raise TrainingError(
            f"before any update a ratio is off 1 by {deviation:.2e}, more than a tenth of the"
            f" clip range ({tolerance:.1e}): sampling and training disagree; try {remedy}"
        )
