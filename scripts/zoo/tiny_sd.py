"""Trains `model=tiny_sd`: a small Stable Diffusion 1 (noise prediction), on rendered scenes.

    python scripts/zoo/tiny_sd.py  # resumes after a stop

Autoencoder, tokenizer and the initial text encoder are `tiny_sd3`'s. The UNet and the text encoder
learn together, at integer timesteps of Stable Diffusion's table, with a tenth of the captions
dropped: most of each batch from the predictions of `tiny_sd3`, the rest from rendered scenes.
Deterministic given the seed, and resumable from `--work`.
"""

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from autoencoder import build_vae, encoded
from card import draw_grid, evaluate, write_card
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from drawing import draw_scenes
from inherited import Parts, grid_path, share_autoencoder, trained_parts, zoo_folder
from lessons import Lessons, kept_lessons, lesson
from muon import Pair
from noising import Batch, Captioned, noisy_batches
from saving import save_half
from torch import Tensor, nn
from training import Leg, Progress, cosine, step_optimizer
from words import TEXT_LENGTH, WIDTH, tokenized

TAUGHT, DRAWN = 24, 8  # in each step
WIDTHS = (64, 96)
ABOUT = [
    "A complete `StableDiffusionPipeline`, small: Stable Diffusion 1's own classes and noise",
    "levels. Distilled from `tiny_sd3` and from drawn, captioned scenes, by",
    "`scripts/zoo/tiny_sd.py`. 64x64 pixels, 16 latent channels, float16 on disk. Autoencoder,",
    "tokenizer and the text encoder's beginnings are those of `tiny_sd3`; the autoencoder's shift",
    "is in its outer convolutions.",
]


def build_pipeline(parts: Parts, seed: int) -> StableDiffusionPipeline:
    """Stable Diffusion 1's own classes, the UNet untrained."""
    torch.manual_seed(seed)
    unet = UNet2DConditionModel(
        sample_size=8,
        in_channels=16,
        out_channels=16,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=WIDTHS,
        layers_per_block=1,
        cross_attention_dim=WIDTH // 2,
        attention_head_dim=tuple(width // 32 for width in WIDTHS),  # in truth the number of heads
        norm_num_groups=4,  # few: the noise that passes through a norm must keep its size
    )
    start_as_identity(unet)
    return StableDiffusionPipeline(
        vae=centred(parts.vae),
        text_encoder=parts.clip,
        tokenizer=parts.clip_tokenizer,
        unet=unet,
        scheduler=DDIMScheduler(
            beta_start=0.00085,
            beta_end=0.012,
            beta_schedule="scaled_linear",
            clip_sample=False,
            set_alpha_to_one=False,
            steps_offset=1,
        ),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


@torch.no_grad()
def start_as_identity(unet: UNet2DConditionModel) -> None:
    """Initialise the UNet so that it predicts its input, with every residual branch 0.

    Near pure noise that is nearly right, and errors there are amplified most in the image.
    Latents pass through as x and -x: silu(x) - silu(-x) = x undoes the last activation.
    """
    for name, module in unet.named_modules():
        if name.endswith((".conv2", ".proj_out")):
            nn.init.zeros_(module.weight)
            nn.init.zeros_(module.bias)
    channels, width = unet.config.in_channels, WIDTHS[0]
    signs = torch.cat([torch.eye(channels), -torch.eye(channels)])
    shortcut = unet.up_blocks[-1].resnets[-1].conv_shortcut
    for conv in (unet.conv_in, shortcut):
        conv.weight[: 2 * channels] = 0
        conv.bias[: 2 * channels] = 0
    unet.conv_in.weight[: 2 * channels, :, 1, 1] = signs
    skip = shortcut.weight[: 2 * channels, width : width + 2 * channels, 0, 0]
    skip.copy_(torch.eye(2 * channels))
    nn.init.zeros_(unet.conv_out.weight)
    nn.init.zeros_(unet.conv_out.bias)
    unet.conv_out.weight[:, : 2 * channels, 1, 1] = signs.T


def centred(vae: AutoencoderKL) -> AutoencoderKL:
    """The same autoencoder without a `shift_factor`, which `StableDiffusionPipeline` does not
    have: the shift is in the 1x1 convolutions before and after the latents, which SD1 has and SD3
    does not.
    """
    outer = build_vae(use_quant_conv=True, use_post_quant_conv=True)
    outer.register_to_config(scaling_factor=vae.config.scaling_factor, shift_factor=None)
    outer.encoder.load_state_dict(vae.encoder.state_dict())
    outer.decoder.load_state_dict(vae.decoder.state_dict())
    shift = torch.full((vae.config.latent_channels,), vae.config.shift_factor)
    biases = {outer.quant_conv: F.pad(-shift, (0, len(shift))), outer.post_quant_conv: shift}
    with torch.no_grad():
        for conv, bias in biases.items():
            conv.weight.copy_(torch.eye(len(bias))[:, :, None, None])
            conv.bias.copy_(bias)
    return outer


def tokenize(pipe: StableDiffusionPipeline, captions: list[str]) -> tuple[Tensor, ...]:
    return tokenized([pipe.tokenizer], captions)


def embed(pipe: StableDiffusionPipeline, ids: Tensor) -> Tensor:
    """The pipeline's own text embedding `[B, L, D]`, with gradients."""
    return pipe.text_encoder(ids).last_hidden_state


@dataclass(frozen=True)
class Noisy:
    """Noisy latents `x` `[B, C, h, w]` at timesteps `[B]`, their abar `[B, 1, 1, 1]`, and the noise
    to predict.
    """

    x: Tensor
    timestep: Tensor
    abar: Tensor
    eps: Tensor


def drawn(batch: Batch, table: Tensor) -> Noisy:
    """Rendered scenes with noise, at stratified timesteps."""
    timestep = (len(table) * batch.time).ceil().long().clamp(min=1) - 1
    abar = table[timestep].view(-1, 1, 1, 1)
    return Noisy(abar.sqrt() * batch.x0 + (1 - abar).sqrt() * batch.eps, timestep, abar, batch.eps)


def taught(velocity: Tensor, rows: Lessons, table: Tensor) -> Noisy:
    """A flow's latents at the scale of this process, and the noise `x + (1 - s) v` in them that
    its `velocity` implies.
    """
    abar = table[rows.timestep].view(-1, 1, 1, 1)
    eps = rows.x + (1 - rows.time.view(-1, 1, 1, 1)) * velocity
    return Noisy((abar.sqrt() + (1 - abar).sqrt()) * rows.x, rows.timestep, abar, eps)


def loss_of(pipe: StableDiffusionPipeline, parts: list[Noisy], words: Tensor) -> Tensor:
    """The error of the predicted noise over abar, which is that of the velocity
    (arXiv 2202.00512): the error of the noise alone is smallest where the image is decided. Limited
    at the very end, where no sample starts.
    """
    x, timestep, abar, eps = (
        torch.cat([getattr(part, name) for part in parts])
        for name in ("x", "timestep", "abar", "eps")
    )
    predicted = pipe.unet(
        x.contiguous(memory_format=torch.channels_last),
        timestep,
        encoder_hidden_states=embed(pipe, words),
        return_dict=False,
    )[0]
    return ((predicted - eps) ** 2 / (abar + 0.01)).mean()


def train(pipe: StableDiffusionPipeline, leg: Leg, data: Captioned, lessons: Lessons) -> None:
    """Train, and put the EMA weights into the pipeline."""
    progress = Progress(leg.path, leg.parts, leg.optimizer, decay=0.998)
    pipe.unet.to(memory_format=torch.channels_last)  # a fifth faster on a CPU
    table = pipe.scheduler.alphas_cumprod
    steps = range(progress.step, leg.steps)
    for step, batch in noisy_batches(data, steps, leg.seed, 1.0, DRAWN):
        learnt = lesson(lessons, data, step, leg.seed + 1, TAUGHT)
        velocity = learnt.velocity(torch.ones(TAUGHT))
        parts = [taught(velocity, learnt.rows, table), drawn(batch, table)]
        loss = loss_of(pipe, parts, torch.cat([learnt.words[0], batch.words[0]]))
        step_optimizer(leg.optimizer, loss, leg.rate(step))
        progress.advance(step, leg.steps, loss)
    progress.use_average()
    pipe.unet.to(memory_format=torch.contiguous_format)


def leg_of(pipe: StableDiffusionPipeline, steps: int, work: Path, seed: int) -> Leg:
    """Muon on the matrices and convolutions of the UNet's blocks, AdamW on the rest."""
    parts = nn.ModuleDict({"unet": pipe.unet, "text_encoder": pipe.text_encoder})
    blocks = nn.ModuleList([pipe.unet.down_blocks, pipe.unet.mid_block, pipe.unet.up_blocks])
    rate = partial(cosine, steps=steps, warmup=100)
    return Leg(work / "noise.pt", parts, Pair(blocks, parts), steps, rate, seed)


def save(pipe: StableDiffusionPipeline, out: Path) -> None:
    """Half precision on disk, after a check that the pipeline embeds text as training did."""
    text = ["a red circle left of a blue square", "three stars"]
    sequence, _ = pipe.encode_prompt(text, torch.device("cpu"), 1, False)
    torch.testing.assert_close(sequence, embed(pipe, *tokenize(pipe, text)))
    assert sequence.shape[1] == TEXT_LENGTH
    save_half(pipe, out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=zoo_folder("tiny_sd"))
    parser.add_argument("--grid", type=Path, default=grid_path("tiny_sd"))
    parser.add_argument("--work", type=Path, default=Path("outputs/zoo/tiny_sd"))
    parser.add_argument("--scenes", type=int, default=40_000)
    parser.add_argument("--lessons", type=int, default=25_600)
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    images, captions = draw_scenes(args.scenes, args.seed)
    parts = trained_parts()
    latents = encoded(parts.vae, images, args.work / "latents.safetensors")
    x0 = (latents - parts.vae.config.shift_factor) * parts.vae.config.scaling_factor
    cache = args.work / "lessons.safetensors"
    lessons = kept_lessons(parts.teacher, x0, captions, args.lessons, args.seed, cache)
    pipe = build_pipeline(parts, args.seed)
    data = Captioned(x0, tokenize(pipe, captions), tokenize(pipe, [""]))
    known = lessons[lessons.timestep >= 0]
    train(pipe, leg_of(pipe, args.steps, args.work, args.seed + 1), data, known)
    save(pipe, args.out)
    recipe = {"seed": args.seed, "scenes": args.scenes}
    recipe |= {"lessons": args.lessons, "steps": args.steps}
    evaluation = evaluate(args.out, "model=tiny_sd")
    write_card(args.out, evaluation.scores, ABOUT, recipe, "the settings of `model=tiny_sd`")
    draw_grid(evaluation, args.grid)
    share_autoencoder(args.out)


if __name__ == "__main__":
    main()
