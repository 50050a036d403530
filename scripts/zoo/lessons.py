"""Distillation targets: what `tiny_sd3` predicts with and without a caption.

The optimal prediction is a mean over the noise of all samples. A student that learns from single
samples has to average it out of many; a teacher gives the mean directly. Its rectified flow is also
Stable Diffusion 1's process, at another scale: x of time s is (alpha + sigma) times smaller than
that of a timestep with s = sigma / (alpha + sigma).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from diffusers import StableDiffusion3Pipeline
from noising import DROPPED, Captioned
from safetensors.torch import load_file, save_file
from tiny_sd3 import embed, tokenize
from torch import Tensor

from rlfactory.dynamics.ops.forward_process import TRAIN_STEPS, VariancePreserving

BEYOND = 0.1  # share of times nearer to noise than the table ends


@dataclass(frozen=True)
class Lessons:
    """Noisy latents `x` `[N, C, h, w]` at `time` `[N]` of rectified flow, the `scene` they come
    from, and the teacher's velocities for its caption and for none. `timestep` is Stable
    Diffusion's of that time, or -1 beyond its table.
    """

    x: Tensor
    time: Tensor
    timestep: Tensor
    scene: Tensor
    given: Tensor
    none: Tensor

    def __getitem__(self, index: Tensor) -> "Lessons":
        rows = {field.name: getattr(self, field.name)[index] for field in fields(self)}
        return Lessons(**{k: v.float() if v.is_floating_point() else v for k, v in rows.items()})


@dataclass(frozen=True)
class Lesson:
    """A batch of lessons with token ids; where `dropped` `[B, 1]`, of the empty caption."""

    rows: Lessons
    words: tuple[Tensor, ...]
    dropped: Tensor
    generator: torch.Generator

    def velocity(self, guidance: Tensor) -> Tensor:
        """The teacher's velocity with `guidance` g `[B]`: `u + g (c - u)`; u where the caption was
        dropped.
        """
        strength = torch.where(self.dropped[:, 0], 0.0, guidance).view(-1, 1, 1, 1)
        return self.rows.none + strength * (self.rows.given - self.rows.none)


def lesson(lessons: Lessons, data: Captioned, step: int, seed: int, size: int) -> Lesson:
    """The batch of a step, a function of the step alone."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    rows = lessons[torch.randint(len(lessons.x), (size,), generator=generator)]
    dropped = torch.rand(size, 1, generator=generator) < DROPPED
    words = tuple(
        torch.where(dropped, none, ids[rows.scene])
        for ids, none in zip(data.words, data.none, strict=True)
    )
    return Lesson(rows, words, dropped, generator)


def sample_times(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Times `[N]` and timesteps, uniform in Stable Diffusion's, a tenth of them beyond."""
    alpha, sigma = VariancePreserving.scaled_linear().alpha_sigma(
        torch.arange(TRAIN_STEPS) / TRAIN_STEPS
    )
    times = sigma / (alpha + sigma)
    timestep = torch.randint(TRAIN_STEPS, (count,), generator=generator)
    beyond = torch.rand(count, generator=generator) < BEYOND
    further = 1 - (1 - times[-1]) * torch.rand(count, generator=generator)
    return torch.where(beyond, further, times[timestep]), torch.where(beyond, -1, timestep)


@torch.no_grad()
def taught(
    teacher: StableDiffusion3Pipeline,
    latents: Tensor,
    captions: Sequence[str],
    count: int,
    seed: int,
) -> Lessons:
    """`count` lessons in half precision; scenes continue where those of `seed - 1` end."""
    generator = torch.Generator().manual_seed(seed)
    time, timestep = sample_times(count, generator)
    scene = (torch.arange(count) + seed * count) % len(latents)
    none = embed(teacher, *tokenize(teacher, [""]))
    parts: dict[str, list[Tensor]] = {"x": [], "given": [], "none": []}
    for rows in scene.split(64):
        s = time[len(parts["x"]) * 64 :][: len(rows)]
        x0 = latents[rows]
        line = s.view(-1, 1, 1, 1)
        x = (1 - line) * x0 + line * torch.randn(x0.shape, generator=generator)
        x = x.half().float()
        text = embed(teacher, *tokenize(teacher, [captions[i] for i in rows]))
        both = [torch.cat([n.expand_as(t), t]) for n, t in zip(none, text, strict=True)]
        u, c = teacher.transformer(
            torch.cat([x, x]),
            encoder_hidden_states=both[0],
            pooled_projections=both[1],
            timestep=1000 * torch.cat([s, s]),
            return_dict=False,
        )[0].chunk(2)
        for name, value in (("x", x), ("given", c), ("none", u)):
            parts[name].append(value.half())
    joined = {name: torch.cat(values).contiguous() for name, values in parts.items()}
    return Lessons(time=time, timestep=timestep, scene=scene, **joined)


def kept_lessons(
    teacher: StableDiffusion3Pipeline,
    latents: Tensor,
    captions: Sequence[str],
    count: int,
    seed: int,
    cache: Path,
) -> Lessons:
    """`taught`, cached on disk for restarts."""
    if not cache.exists():
        lessons = taught(teacher, latents, captions, count, seed)
        save_file({f.name: getattr(lessons, f.name) for f in fields(lessons)}, cache)
    return Lessons(**load_file(cache))
