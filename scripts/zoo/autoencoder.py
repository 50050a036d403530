"""The autoencoder of the image models: 16 channels, 8 by 8 latents for 64 by 64 pixels."""

from pathlib import Path

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from training import Progress, batches, cosine, step_optimizer


def build_vae(widths: tuple[int, ...] = (16, 16, 64, 64), **options: object) -> AutoencoderKL:
    """The untrained autoencoder, with a halving between neighbouring `widths`."""
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * len(widths),
        up_block_types=("UpDecoderBlock2D",) * len(widths),
        block_out_channels=widths,
        layers_per_block=1,
        norm_num_groups=8,
        **{
            "latent_channels": 16,
            "sample_size": 64,
            "use_quant_conv": False,
            "use_post_quant_conv": False,
        }
        | options,
    )


def train_vae(vae: AutoencoderKL, images: Tensor, steps: int, work: Path, seed: int) -> None:
    """Fit pixels and their differences, with five times the weight on objects.

    Slight fixed noise on the latents, instead of a learned variance, makes near latents decode
    alike.
    """
    optimizer = torch.optim.AdamW(vae.parameters(), lr=1e-3, weight_decay=0.0, betas=(0.9, 0.95))
    progress = Progress(work / "vae.pt", nn.ModuleDict({"vae": vae}), optimizer, decay=0.995)
    for step, index, generator in batches(len(images), 8, range(progress.step, steps), seed):
        x = images[index].float() / 127.5 - 1
        mean = vae.encode(x).latent_dist.mean
        y = vae.decode(mean + 0.1 * torch.randn(mean.shape, generator=generator)).sample
        loss = reconstruction_loss(y, x) + 1e-3 * mean.pow(2).mean()
        step_optimizer(optimizer, loss, cosine(step, steps, 30))
        progress.advance(step, steps, loss)
    progress.use_average()


def reconstruction_loss(y: Tensor, x: Tensor) -> Tensor:
    """Squared errors fit colours quickly; absolute errors and differences keep edges sharp."""
    is_object = (x - x[:, :, :1, :1]).abs().amax(1, keepdim=True) > 0.1
    weight = 1 + 4 * is_object.float()
    edges = sum(F.mse_loss(y.diff(dim=d), x.diff(dim=d)) for d in (2, 3))
    return (weight * ((y - x).abs() + 5 * (y - x) ** 2)).mean() + 5 * edges


@torch.no_grad()
def encode_images(vae: AutoencoderKL, images: Tensor) -> Tensor:
    """Posterior means, before shift and scale, `[N, 16, 8, 8]`."""
    parts = [vae.encode(chunk.float() / 127.5 - 1).latent_dist.mean for chunk in images.split(64)]
    return torch.cat(parts).contiguous()


def encoded(vae: AutoencoderKL, images: Tensor, cache: Path) -> Tensor:
    """`encode_images`, cached on disk for restarts."""
    if not cache.exists():
        save_file({"latents": encode_images(vae, images)}, cache)
    return load_file(cache)["latents"]
