"""Trains `model=tiny_flux`: a small FLUX.1 dev with embedded guidance, on rendered scenes.

    python scripts/zoo/tiny_flux.py  # resumes after a stop

Autoencoder, tokenizers and the initial text encoders are `tiny_sd3`'s. As FLUX.1 dev was distilled
from a guided model, so is this one, from a guided `tiny_sd3`: given a guidance from 1 to 5, it
predicts in one evaluation what classifier-free guidance computes from two. A quarter of each batch
are rendered scenes, at guidance 1. Deterministic given the seed, and resumable from `--work`.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from autoencoder import encoded
from card import draw_grid, evaluate, write_card
from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
from drawing import draw_scenes
from inherited import Parts, grid_path, share_autoencoder, trained_parts, zoo_folder
from lessons import Lesson, Lessons, kept_lessons, lesson
from muon import Pair
from noising import Batch, Captioned, noisy_batches
from saving import save_half
from torch import Tensor, nn
from training import Leg, Progress, cosine, step_optimizer
from words import TEXT_LENGTH, WIDTH, tokenized

GUIDANCE = (1.0, 5.0)
SHIFT = 2.0
FIRST_STEPS = 1_500
TAUGHT, DRAWN = 48, 16  # in each step
PARTS = ("transformer", "text_encoder", "text_encoder_2")
ABOUT = [
    "A complete `FluxPipeline`, small: FLUX.1 dev's own classes, with embedded guidance (from 1 to",
    "5), packed latents and dynamic shift. Distilled from a guided `tiny_sd3` and from drawn,",
    "captioned scenes, by `scripts/zoo/tiny_flux.py`. 64x64 pixels, 16 image tokens, float16 on",
    "disk. Autoencoder, tokenizers and the text encoders' beginnings are those of `tiny_sd3`.",
]


def build_pipeline(parts: Parts, seed: int) -> FluxPipeline:
    """FLUX's own classes, the transformer untrained."""
    torch.manual_seed(seed)
    transformer = FluxTransformer2DModel(
        num_layers=2,
        num_single_layers=4,
        attention_head_dim=32,
        num_attention_heads=WIDTH // 32,
        joint_attention_dim=WIDTH,
        pooled_projection_dim=WIDTH // 2,
        guidance_embeds=True,
        axes_dims_rope=(8, 12, 12),
    )
    start_as_published(transformer)
    return FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=parts.vae,
        text_encoder=parts.clip,
        tokenizer=parts.clip_tokenizer,
        text_encoder_2=parts.t5,
        tokenizer_2=parts.t5_tokenizer,
        transformer=transformer,
    )


def start_as_published(transformer: FluxTransformer2DModel) -> None:
    """Initialise every block as the identity and the output as 0 (adaLN-Zero, arXiv 2212.09748)."""
    for name, module in transformer.named_modules():
        if name.endswith((".norm1.linear", ".norm1_context.linear", ".norm.linear")):
            nn.init.zeros_(module.weight)
            nn.init.zeros_(module.bias)
    for module in (transformer.norm_out.linear, transformer.proj_out):
        nn.init.zeros_(module.weight)
        nn.init.zeros_(module.bias)


def tokenize(pipe: FluxPipeline, captions: list[str]) -> tuple[Tensor, ...]:
    return tokenized([pipe.tokenizer, pipe.tokenizer_2], captions)


def embed(pipe: FluxPipeline, clip_ids: Tensor, t5_ids: Tensor) -> tuple[Tensor, Tensor]:
    """The pipeline's own text embedding, with gradients: T5's sequence `[B, L, D]` and CLIP's
    pooled output `[B, P]`.
    """
    return pipe.text_encoder_2(t5_ids)[0], pipe.text_encoder(clip_ids).pooler_output


def velocity(
    transformer: FluxTransformer2DModel,
    x: Tensor,
    time: Tensor,
    text: tuple[Tensor, Tensor],
    guidance: Tensor,
) -> Tensor:
    """The velocity of `x` `[B, 16, h, w]` at `time` `[B]` with guidance `[B]` as input."""
    (batch, channels, h, w), (sequence, pooled) = x.shape, text
    packed = transformer(
        hidden_states=FluxPipeline._pack_latents(x, batch, channels, h, w),
        timestep=time,
        guidance=guidance,
        encoder_hidden_states=sequence,
        pooled_projections=pooled,
        txt_ids=x.new_zeros(sequence.shape[1], 3),
        img_ids=FluxPipeline._prepare_latent_image_ids(batch, h // 2, w // 2, x.device, x.dtype),
        return_dict=False,
    )[0]
    return FluxPipeline._unpack_latents(packed, 8 * h, 8 * w, 8)


def loss_of(pipe: FluxPipeline, batch: Batch, taught: Lesson) -> Tensor:
    """The distance to the velocities of drawn samples, at guidance 1, and to the guided teacher's
    at any.
    """
    low, high = GUIDANCE
    size = taught.rows.time.shape
    guidance = low + (high - low) * torch.rand(size, generator=taught.generator)
    target = torch.cat([taught.velocity(guidance), batch.eps - batch.x0])
    words = tuple(torch.cat(pair) for pair in zip(taught.words, batch.words, strict=True))
    predicted = velocity(
        pipe.transformer,
        torch.cat([taught.rows.x, batch.on_the_line]),
        torch.cat([taught.rows.time, batch.time]),
        embed(pipe, *words),
        torch.cat([guidance, torch.ones_like(batch.time)]),
    )
    return F.mse_loss(predicted, target)


def train(pipe: FluxPipeline, leg: Leg, data: Captioned, lessons: Lessons) -> None:
    """Train, and put the EMA weights into the pipeline."""
    progress = Progress(leg.path, leg.parts, leg.optimizer, decay=0.998)
    steps = range(progress.step, leg.steps)
    for step, batch in noisy_batches(data, steps, leg.seed, SHIFT, DRAWN):
        loss = loss_of(pipe, batch, lesson(lessons, data, step, leg.seed + 1, TAUGHT))
        step_optimizer(leg.optimizer, loss, leg.rate(step))
        progress.advance(step, leg.steps, loss)
    progress.use_average()


def blocks(transformer: FluxTransformer2DModel) -> nn.ModuleList:
    return nn.ModuleList([transformer.transformer_blocks, transformer.single_transformer_blocks])


def legs(pipe: FluxPipeline, steps: list[int], work: Path, seed: int) -> Iterator[Leg]:
    """A first stretch that ends before its rate does, then others, each from the average of the
    one before, and from the second on at half its rate; Muon on the matrices of the blocks,
    AdamW on the rest.
    """
    parts = nn.ModuleDict({name: getattr(pipe, name) for name in PARTS})
    first = Pair(blocks(pipe.transformer), parts)
    rate = partial(cosine, steps=2_200, warmup=100)
    yield Leg(work / "flow_1.pt", parts, first, FIRST_STEPS, rate, seed + 1)
    for i, count in enumerate(steps):
        pair, rate = Pair(blocks(pipe.transformer), parts), partial(fading, steps=count, times=i)
        yield Leg(work / f"flow_{i + 2}.pt", parts, pair, count, rate, seed + 2 * i + 3)


def fading(step: int, steps: int, times: int) -> float:
    """A cosine schedule, halved so many times."""
    return 0.5**times * cosine(step, steps, warmup=100)


def save(pipe: FluxPipeline, out: Path) -> None:
    """Half precision on disk, after a check that the pipeline embeds text as training did."""
    text = ["a red circle left of a blue square", "three stars"]
    expected = embed(pipe, *tokenize(pipe, text))
    sequence, pooled, _ = pipe.encode_prompt(text, max_sequence_length=TEXT_LENGTH)
    torch.testing.assert_close((sequence, pooled), expected)
    save_half(pipe, out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=zoo_folder("tiny_flux"))
    parser.add_argument("--grid", type=Path, default=grid_path("tiny_flux"))
    parser.add_argument("--work", type=Path, default=Path("outputs/zoo/tiny_flux"))
    parser.add_argument("--scenes", type=int, default=40_000)
    parser.add_argument("--lessons", type=int, default=25_600)
    parser.add_argument("--steps", type=int, nargs="+", default=[3_200, 1_300])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    images, captions = draw_scenes(args.scenes, args.seed)
    parts = trained_parts()
    pipe = build_pipeline(parts, args.seed)
    latents = encoded(pipe.vae, images, args.work / "latents.safetensors")
    x0 = (latents - pipe.vae.config.shift_factor) * pipe.vae.config.scaling_factor
    data = Captioned(x0, tokenize(pipe, captions), tokenize(pipe, [""]))
    for i, leg in enumerate(legs(pipe, args.steps, args.work, args.seed)):
        fresh = max(0, i - 1)  # the first two share theirs
        cache = args.work / f"lessons_{fresh}.safetensors"
        lessons = kept_lessons(parts.teacher, x0, captions, args.lessons, args.seed + fresh, cache)
        train(pipe, leg, data, lessons)
    save(pipe, args.out)
    recipe = {"seed": args.seed, "scenes": args.scenes}
    recipe |= {"lessons": len(args.steps) * args.lessons, "steps": FIRST_STEPS + sum(args.steps)}
    evaluation = evaluate(args.out, "model=tiny_flux")
    write_card(args.out, evaluation.scores, ABOUT, recipe, "the settings of `model=tiny_flux`")
    draw_grid(evaluation, args.grid)
    share_autoencoder(args.out)


if __name__ == "__main__":
    main()
