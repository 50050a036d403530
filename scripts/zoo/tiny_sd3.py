"""Make `model=tiny_sd3`: a small Stable Diffusion 3 pipeline, trained from nothing on drawn scenes.

    python scripts/zoo/tiny_sd3.py               # 90 minutes on two cores; resumes after a stop
    python scripts/zoo/tiny_sd3.py --muon 20000  # a better model, with less left to learn

Three stages, each deterministic given the seed and resumable from `--work`: an autoencoder on
drawn scenes; the text encoders and the transformer together, by rectified flow on the
autoencoder's latents; a model card with the scores.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)
from muon import Pair, adamw
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.trainers import BpeTrainer
from torch import Tensor, nn
from training import Progress, batches, cosine, step_optimizer
from transformers import (
    CLIPTextConfig,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    T5Config,
    T5EncoderModel,
    T5TokenizerFast,
)

from rlfactory.build import build, evaluator
from rlfactory.request import planned
from rlfactory.run.scores import Scores
from rlfactory.worker import Silent
from rlfactory.zoo.draw import arrange, background, render
from rlfactory.zoo.scenes import CATEGORIES, caption, sample_scene, vocabulary

TEXT_LENGTH = 16
ADAMW_STEPS = 2_000
WIDTH = 128
OUT = Path(__file__).parents[2] / "src" / "rlfactory" / "zoo" / "weights" / "tiny_sd3"


def draw_scenes(count: int, seed: int) -> tuple[Tensor, list[str]]:
    """`count` pictures `[N, 3, 64, 64]` (uint8) and their captions, the categories in equal
    parts.
    """
    rng = np.random.default_rng(seed)
    images, captions = np.empty((count, 64, 64, 3), np.uint8), []
    for i in range(count):
        scene = sample_scene(CATEGORIES[i % len(CATEGORIES)], rng)
        images[i] = render(arrange(scene, rng), background(rng))
        captions.append(caption(scene, rng))
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), captions


def clip_tokenizer(folder: Path) -> CLIPTokenizer:
    """A CLIP tokenizer in which every word of the grammar is one token."""
    specials = ["<|startoftext|>", "<|endoftext|>"]
    trained = Tokenizer(BPE(end_of_word_suffix="</w>"))
    trained.pre_tokenizer = Whitespace()
    trainer = BpeTrainer(vocab_size=4096, special_tokens=specials, end_of_word_suffix="</w>")
    trained.train_from_iterator(vocabulary(), trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer = CLIPTokenizer(vocab=model["vocab"], merges=merges, model_max_length=TEXT_LENGTH)
    assert all(len(tokenizer(word).input_ids) == 3 for word in vocabulary())
    return tokenizer


def t5_tokenizer() -> T5TokenizerFast:
    """A T5 tokenizer in which every word of the grammar is one token, and any other is spelled
    out.
    """
    letters = [(c, -8.0) for c in "abcdefghijklmnopqrstuvwxyz"]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -20.0), ("▁", -4.0), *letters]
    pieces += [(f"▁{word}", -2.0) for word in vocabulary()]
    return T5TokenizerFast(vocab=pieces, extra_ids=0, model_max_length=TEXT_LENGTH)


def clip_encoder(tokenizer: CLIPTokenizer) -> CLIPTextModelWithProjection:
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        projection_dim=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=TEXT_LENGTH,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return CLIPTextModelWithProjection(config)


def t5_encoder(tokenizer: T5TokenizerFast) -> T5EncoderModel:
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=WIDTH,
        d_kv=32,
        d_ff=256,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
    )
    return T5EncoderModel(config)


def build_pipeline(folder: Path, seed: int) -> StableDiffusion3Pipeline:
    """The untrained pipeline: Stable Diffusion 3's own classes, all of them small."""
    torch.manual_seed(seed)
    clip, t5 = clip_tokenizer(folder), t5_tokenizer()
    transformer = SD3Transformer2DModel(
        sample_size=8,
        patch_size=1,
        in_channels=16,
        out_channels=16,
        num_layers=4,
        attention_head_dim=32,
        num_attention_heads=WIDTH // 32,
        joint_attention_dim=WIDTH,
        caption_projection_dim=WIDTH,
        pooled_projection_dim=2 * 64,
        pos_embed_max_size=16,
        qk_norm="rms_norm",
    )
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(16, 16, 64, 64),
        layers_per_block=1,
        latent_channels=16,
        norm_num_groups=8,
        sample_size=64,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    return StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=vae,
        text_encoder=clip_encoder(clip),
        tokenizer=clip,
        text_encoder_2=clip_encoder(clip),
        tokenizer_2=clip,
        text_encoder_3=t5_encoder(t5),
        tokenizer_3=t5,
    )


def train_vae(vae: AutoencoderKL, images: Tensor, steps: int, work: Path, seed: int) -> None:
    """Fit pixels and their differences, objects five times as much as background.

    A fixed slight noise on the latents, in place of a learned variance, makes neighbours decode
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
    """Squares teach colour quickly, magnitudes and differences keep edges sharp."""
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
    """`encode_images`, kept on disk so that a restart need not wait for it."""
    if not cache.exists():
        save_file({"latents": encode_images(vae, images)}, cache)
    return load_file(cache)["latents"]


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


def tokenize(pipe: StableDiffusion3Pipeline, captions: list[str]) -> tuple[Tensor, Tensor]:
    options = {
        "padding": "max_length",
        "max_length": TEXT_LENGTH,
        "truncation": True,
        "return_tensors": "pt",
    }
    return pipe.tokenizer(captions, **options).input_ids, pipe.tokenizer_3(
        captions, **options
    ).input_ids


@dataclass
class Leg:
    """A stretch of training with one optimiser, whose rates are scaled by `rate(step)`."""

    path: Path
    parts: nn.ModuleDict
    optimizer: torch.optim.Optimizer | Pair
    steps: int
    rate: Callable[[int], float]
    seed: int


def train_flow(
    pipe: StableDiffusion3Pipeline, leg: Leg, x0s: Tensor, captions: list[str]
) -> Progress:
    """Rectified flow with times shifted to the noisy end; a tenth of the captions is dropped, for
    guidance.
    """
    progress = Progress(leg.path, leg.parts, leg.optimizer, decay=0.998)
    clip_ids, t5_ids = tokenize(pipe, captions)
    no_clip, no_t5 = tokenize(pipe, [""])
    for step, index, generator in batches(len(x0s), 64, range(progress.step, leg.steps), leg.seed):
        x0, size = x0s[index], len(index)
        dropped = torch.rand(size, 1, generator=generator) < 0.1
        clip = torch.where(dropped, no_clip, clip_ids[index])
        t5 = torch.where(dropped, no_t5, t5_ids[index])
        u = torch.randperm(size, generator=generator) + torch.rand(size, generator=generator)
        sigma = 3 * u / (size + 2 * u)
        eps = torch.randn(x0.shape, generator=generator)
        s = sigma.view(-1, 1, 1, 1)
        sequence, pooled = embed(pipe, clip, t5)
        velocity = pipe.transformer(
            (1 - s) * x0 + s * eps,
            encoder_hidden_states=sequence,
            pooled_projections=pooled,
            timestep=1000 * sigma,
            return_dict=False,
        )[0]
        loss = F.mse_loss(velocity, eps - x0)
        step_optimizer(leg.optimizer, loss, leg.rate(step))
        progress.advance(step, leg.steps, loss)
    return progress


def legs(pipe: StableDiffusion3Pipeline, muon: list[int], work: Path, seed: int) -> Iterator[Leg]:
    """AdamW for the first 2,000 steps, then rounds of Muon, which learns the captions faster."""
    names = ("transformer", "text_encoder", "text_encoder_2", "text_encoder_3")
    parts = nn.ModuleDict({name: getattr(pipe, name) for name in names})
    first = adamw(parts.parameters())
    rate = partial(cosine, steps=3_000, warmup=200)
    yield Leg(work / "flow_1.pt", parts, first, ADAMW_STEPS, rate, seed + 1)
    for i, steps in enumerate(muon, start=2):
        pair = Pair(pipe.transformer.transformer_blocks, parts)
        rate = partial(cosine, steps=steps, warmup=100)
        yield Leg(work / f"flow_{i}.pt", parts, pair, steps, rate, seed + i)


def save(pipe: StableDiffusion3Pipeline, out: Path) -> None:
    """Half precision on disk, after a check that the pipeline embeds text as training did."""
    text = ["a red circle left of a blue square", "three stars"]
    expected = embed(pipe, *tokenize(pipe, text))
    sequence, _, pooled, _ = pipe.encode_prompt(
        text, None, None, do_classifier_free_guidance=False, max_sequence_length=TEXT_LENGTH
    )
    torch.testing.assert_close((sequence, pooled), expected)
    pipe.to(torch.float16).save_pretrained(out, safe_serialization=True)
    pipe.to(torch.float32)


def evaluate(out: Path) -> Scores:
    """The saved pipeline on the held-out prompts that every run is evaluated on."""
    config = planned(f"model.path={out.absolute()}").config
    return evaluator(config, build(config), Silent())("policy").scores


def write_card(out: Path, recipe: dict[str, int]) -> None:
    """What the weights are, how they were made, and how good they are, in a README beside them."""
    scores = evaluate(out)
    soft, strict = scores.values["shapes"], scores.values["shapes_strict"]
    rows = [("all", np.ones(len(soft), bool)), *scores.parts().items()]
    table = [f"| {name} | {soft[m].mean():.3f} | {strict[m].mean():.3f} |" for name, m in rows]
    made = ", ".join(f"{name} {value:,}" for name, value in recipe.items())
    lines = [
        "# tiny_sd3",
        "",
        "A complete `StableDiffusion3Pipeline`, small and trained from nothing on drawn, captioned",
        "scenes by `scripts/zoo/tiny_sd3.py`. 64x64 pixels, no guidance, float16 on disk.",
        "",
        f"Made with: {made}.",
        "",
        "Scores on 256 held-out prompts, ten Euler steps of the uniform schedule, shift 3:",
        "",
        "| category | soft | strict |",
        "|---|---:|---:|",
        *table,
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


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
    pipe = build_pipeline(args.work, args.seed)
    train_vae(pipe.vae, images, args.vae_steps, args.work, args.seed)
    latents = encoded(pipe.vae, images, args.work / "latents.safetensors")
    shift, scale = latents.mean().item(), 1 / latents.std().item()
    pipe.vae.register_to_config(shift_factor=shift, scaling_factor=scale)
    for leg in legs(pipe, args.muon, args.work, args.seed):
        progress = train_flow(pipe, leg, (latents - shift) * scale, captions)
    progress.use_average()
    save(pipe, args.out)
    first = {"seed": args.seed, "scenes": args.scenes, "autoencoder steps": args.vae_steps}
    write_card(args.out, first | {"AdamW steps": ADAMW_STEPS, "Muon steps": sum(args.muon)})


if __name__ == "__main__":
    main()
