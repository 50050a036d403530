"""Trains `model=tiny_sd3`: a small Stable Diffusion 3, from scratch on rendered scenes.

    python scripts/zoo/tiny_sd3.py               # 90 minutes on two cores; resumes after a stop
    python scripts/zoo/tiny_sd3.py --muon 20000  # a better model, with less left to learn

Three stages, each deterministic given the seed and resumable from `--work`: an autoencoder on
rendered scenes; the text encoders and the transformer together, by rectified flow on the
autoencoder's latents; a model card with the scores.
"""

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from autoencoder import build_vae, encoded, train_vae
from card import evaluate, write_card
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)
from drawing import draw_scenes
from muon import Pair, adamw
from noising import Batch, Captioned, noisy_batches
from saving import save_half
from torch import Tensor, nn
from training import Leg, Progress, cosine, step_optimizer
from words import (
    TEXT_LENGTH,
    WIDTH,
    clip_encoder,
    clip_tokenizer,
    t5_encoder,
    t5_tokenizer,
    tokenized,
)

ADAMW_STEPS = 2_000
SHIFT = 3.0
OUT = Path(__file__).parents[2] / "src" / "rlfactory" / "model" / "zoo" / "weights" / "tiny_sd3"
ABOUT = [
    "A complete `StableDiffusion3Pipeline`, small and trained from nothing on drawn, captioned",
    "scenes by `scripts/zoo/tiny_sd3.py`. 64x64 pixels, no guidance, float16 on disk.",
]


def build_pipeline(
    seed: int,
    words: Sequence[str] | None = None,
    width: int = WIDTH,
    text_width: int = WIDTH,
    patch: int = 1,
    channels: int = 16,
    sample_size: int = 8,
) -> StableDiffusion3Pipeline:
    """The untrained pipeline: Stable Diffusion 3's own classes, all of them small.

    `words` are those that it knows, None for the grammar's; `width` is the transformer's,
    `text_width` T5's and that of both CLIPs together, `patch` a token's edge in latents, `channels`
    the latents'; the positions of neighbours differ by `sample_size / patch / 16`.
    """
    torch.manual_seed(seed)
    clip, t5 = clip_tokenizer(words), t5_tokenizer(words)
    transformer = SD3Transformer2DModel(
        sample_size=sample_size,
        patch_size=patch,
        in_channels=channels,
        out_channels=channels,
        num_layers=4,
        attention_head_dim=32,
        num_attention_heads=width // 32,
        joint_attention_dim=text_width,
        caption_projection_dim=width,
        pooled_projection_dim=2 * 64,
        pos_embed_max_size=16,
        qk_norm="rms_norm",
    )
    vae = build_vae()
    return StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=SHIFT),
        vae=vae,
        text_encoder=clip_encoder(clip, text_width // 2),
        tokenizer=clip,
        text_encoder_2=clip_encoder(clip, text_width // 2),
        tokenizer_2=clip,
        text_encoder_3=t5_encoder(t5, text_width),
        tokenizer_3=t5,
    )


def embed(
    pipe: StableDiffusion3Pipeline, clip_ids: Tensor, t5_ids: Tensor
) -> tuple[Tensor, Tensor]:
    """The pipeline's own text embedding, with gradients: sequence `[B, 2 L, D]` and pooled `[B,
    128]`.
    """
    outputs = [
        m(clip_ids, output_hidden_states=True) for m in (pipe.text_encoder, pipe.text_encoder_2)
    ]
    clip = torch.cat([o.hidden_states[-2] for o in outputs], dim=-1)
    t5 = pipe.text_encoder_3(t5_ids)[0]
    clip = F.pad(clip, (0, t5.shape[-1] - clip.shape[-1]))
    return torch.cat([clip, t5], dim=1), torch.cat([o.text_embeds for o in outputs], dim=-1)


def tokenize(pipe: StableDiffusion3Pipeline, captions: list[str]) -> tuple[Tensor, ...]:
    return tokenized([pipe.tokenizer, pipe.tokenizer_3], captions)


def captioned(
    pipe: StableDiffusion3Pipeline, images: Tensor, captions: list[str], work: Path
) -> Captioned:
    """What the flow learns: normalised latents and captions; the pipeline keeps their scale."""
    latents = encoded(pipe.vae, images, work / "latents.safetensors")
    shift, scale = latents.mean().item(), 1 / latents.std().item()
    pipe.vae.register_to_config(shift_factor=shift, scaling_factor=scale)
    return Captioned((latents - shift) * scale, tokenize(pipe, captions), tokenize(pipe, [""]))


def flow_parts(pipe: StableDiffusion3Pipeline) -> nn.ModuleDict:
    """The networks that rectified flow trains."""
    names = ("transformer", "text_encoder", "text_encoder_2", "text_encoder_3")
    return nn.ModuleDict({name: getattr(pipe, name) for name in names})


def flow_loss(pipe: StableDiffusion3Pipeline, batch: Batch) -> Tensor:
    """Rectified flow's loss: the squared error of the predicted velocity."""
    sequence, pooled = embed(pipe, *batch.words)
    velocity = pipe.transformer(
        batch.on_the_line,
        encoder_hidden_states=sequence,
        pooled_projections=pooled,
        timestep=1000 * batch.time,
        return_dict=False,
    )[0]
    return F.mse_loss(velocity, batch.eps - batch.x0)


def train_flow(
    pipe: StableDiffusion3Pipeline, leg: Leg, data: Captioned, decay: float = 0.998
) -> Progress:
    """Train by rectified flow, with times shifted towards noise."""
    progress = Progress(leg.path, leg.parts, leg.optimizer, decay)
    steps = range(progress.step, leg.steps)
    for step, batch in noisy_batches(data, steps, leg.seed, SHIFT):
        loss = flow_loss(pipe, batch)
        step_optimizer(leg.optimizer, loss, leg.rate(step))
        progress.advance(step, leg.steps, loss)
    return progress


def legs(pipe: StableDiffusion3Pipeline, muon: list[int], work: Path, seed: int) -> Iterator[Leg]:
    """AdamW for the first 2,000 steps, then stages of Muon, which learns the captions faster."""
    parts = flow_parts(pipe)
    first = adamw(parts.parameters())
    rate = partial(cosine, steps=3_000, warmup=200)
    yield Leg(work / "flow_1.pt", parts, first, ADAMW_STEPS, rate, seed + 1)
    for i, steps in enumerate(muon, start=2):
        pair = Pair(pipe.transformer.transformer_blocks, parts)
        rate = partial(cosine, steps=steps, warmup=100)
        yield Leg(work / f"flow_{i}.pt", parts, pair, steps, rate, seed + i)


def save(
    pipe: StableDiffusion3Pipeline,
    out: Path,
    text: Sequence[str] = ("a red circle left of a blue square", "three stars"),
) -> None:
    """Half precision on disk, after a check that the pipeline embeds text as training did."""
    text = [*text]
    expected = embed(pipe, *tokenize(pipe, text))
    sequence, _, pooled, _ = pipe.encode_prompt(
        text, None, None, do_classifier_free_guidance=False, max_sequence_length=TEXT_LENGTH
    )
    torch.testing.assert_close((sequence, pooled), expected)
    save_half(pipe, out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--work", type=Path, default=Path("outputs/zoo/tiny_sd3"))
    parser.add_argument("--scenes", type=int, default=40_000)
    parser.add_argument("--vae-steps", type=int, default=3_000)
    parser.add_argument("--muon", type=int, nargs="+", default=[2_800, 3_000], metavar="STEPS")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    images, captions = draw_scenes(args.scenes, args.seed)
    pipe = build_pipeline(args.seed)
    train_vae(pipe.vae, images, args.vae_steps, args.work, args.seed)
    data = captioned(pipe, images, captions, args.work)
    for leg in legs(pipe, args.muon, args.work, args.seed):
        progress = train_flow(pipe, leg, data)
    progress.use_average()
    save(pipe, args.out)
    first = {"seed": args.seed, "scenes": args.scenes, "autoencoder steps": args.vae_steps}
    recipe = first | {"AdamW steps": ADAMW_STEPS, "Muon steps": sum(args.muon)}
    scores = evaluate(args.out, "model=tiny_sd3").scores
    write_card(args.out, scores, ABOUT, recipe, "ten Euler steps of the uniform schedule, shift 3")


if __name__ == "__main__":
    main()
