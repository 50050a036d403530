"""Folders with tiny random pipelines of diffusers' own classes, one for each family.

That of Stable Diffusion 3 is in conftest.py.
"""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
from diffusers import (
    AutoencoderDC,
    AutoencoderKL,
    AutoencoderKLFlux2,
    AutoencoderKLLTXVideo,
    AutoencoderKLQwenImage,
    AutoencoderKLQwenImage21,
    AutoencoderKLWan,
    ChromaPipeline,
    ChromaTransformer2DModel,
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    ErnieImagePipeline,
    ErnieImageTransformer2DModel,
    FlowMatchEulerDiscreteScheduler,
    Flux2KleinPipeline,
    Flux2Pipeline,
    Flux2Transformer2DModel,
    Flux3DistilledModularPipeline,
    Flux3ModularPipeline,
    Flux3Transformer2DModel,
    FluxKontextPipeline,
    FluxPipeline,
    FluxTransformer2DModel,
    Krea2Pipeline,
    Krea2Transformer2DModel,
    LTXPipeline,
    LTXVideoTransformer3DModel,
    Lumina2Pipeline,
    Lumina2Transformer2DModel,
    QwenImage21Pipeline,
    QwenImage21Transformer2DModel,
    QwenImageEditPlusPipeline,
    QwenImagePipeline,
    QwenImageTransformer2DModel,
    SanaPipeline,
    SanaTransformer2DModel,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
    UniPCMultistepScheduler,
    WanImageToVideoPipeline,
    WanPipeline,
    WanTransformer3DModel,
    ZImagePipeline,
    ZImageTransformer2DModel,
)
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from torch import nn
from transformers import (
    CLIPImageProcessor,
    CLIPImageProcessorPil,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    CLIPVisionConfig,
    CLIPVisionModel,
    Gemma2Config,
    Gemma2Model,
    LlavaProcessor,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    Mistral3Model,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3Model,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLModel,
    T5Config,
    T5EncoderModel,
    UMT5Config,
    UMT5EncoderModel,
)

from rlfactory.model.base import ImageModel
from rlfactory.model.pipelines.families import FAMILIES
from rlfactory.model.pipelines.modular import save_pipeline
from rlfactory.prompts.edits import EditsPrompts
from rlfactory.prompts.ops.pictured import PicturedText

__all__ = [
    "chroma_folder",
    "ernie_image_folder",
    "flux2_dev_folder",
    "flux2_folder",
    "flux3_distilled_folder",
    "flux3_folder",
    "flux_folders",
    "flux_kontext_folder",
    "qwen_image_21_folder",
    "qwen_image_edit_folder",
    "krea2_folder",
    "ltx_conditioned_folder",
    "ltx_folder",
    "lumina2_folder",
    "qwen_image_folder",
    "sana_folder",
    "schnell_folder",
    "sd_folder",
    "sd_v_folder",
    "sdxl_folder",
    "small",
    "wan21_i2v_folder",
    "wan22_folder",
    "wan_folder",
    "wan_i2v_folder",
    "z_image_folder",
]
"""The fixtures, for `from tiny_pipelines import *`."""

WIDTH = 16


def with_pictures(model: ImageModel, texts: list[str]) -> list[str]:
    """The texts, each with a picture of its own where the model edits pictures."""
    if not model.pictures:
        return texts
    edited = EditsPrompts().held_out(len(texts))
    return [PicturedText(t, prompt.text.source) for t, prompt in zip(texts, edited, strict=True)]


def clip_encoder(tokenizer: CLIPTokenizer) -> CLIPTextModel:
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=tokenizer.model_max_length,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.5,
    )
    return CLIPTextModel(config)


def autoencoder(channels: int, **options: object) -> AutoencoderKL:
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(4, 4, 8, 8),
        layers_per_block=1,
        latent_channels=channels,
        norm_num_groups=2,
        sample_size=64,
        **options,
    )


def autoencoder_of_videos() -> AutoencoderKLQwenImage:
    return AutoencoderKLQwenImage(
        base_dim=8,
        z_dim=4,
        dim_mult=[1, 2, 2],
        num_res_blocks=1,
        temperal_downsample=[False, True],
        latents_mean=[0.1, -0.2, 0.3, 0.0],
        latents_std=[1.5, 0.7, 1.0, 2.0],
    )


def disturb(network: nn.Module) -> None:
    """Untrained output layers are near zero, and every comparison an easy one."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


@pytest.fixture(scope="session")
def sd_folder(recipe: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `StableDiffusionPipeline` with SD1's noise levels, its UNet of two levels."""
    folder = tmp_path_factory.mktemp("tiny_sd")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = recipe.clip_tokenizer()
        unet = UNet2DConditionModel(
            sample_size=8,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            block_out_channels=(WIDTH, WIDTH),
            layers_per_block=1,
            cross_attention_dim=WIDTH,
            attention_head_dim=2,
            norm_num_groups=4,
        )
        disturb(unet)
        pipe = StableDiffusionPipeline(
            vae=autoencoder(4, scaling_factor=0.18215),
            text_encoder=clip_encoder(tokenizer),
            tokenizer=tokenizer,
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
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


def with_prediction(folder: Path, kind: str) -> None:
    """What a pipeline's scheduler says that its network predicts."""
    config = folder / "scheduler" / "scheduler_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"prediction_type": kind}))


@pytest.fixture(scope="session")
def sd_v_folder(sd_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, of a network that predicts v as Stable Diffusion 2.1's."""
    folder = tmp_path_factory.mktemp("tiny_sd_v") / "pipe"
    shutil.copytree(sd_folder, folder)
    with_prediction(folder, "v_prediction")
    return folder


@pytest.fixture(scope="session")
def sdxl_folder(recipe: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `StableDiffusionXLPipeline`, with transformers of two layers at its lower level."""
    folder = tmp_path_factory.mktemp("tiny_sdxl")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = recipe.clip_tokenizer()
        config = clip_encoder(tokenizer).config
        config.projection_dim = WIDTH
        unet = UNet2DConditionModel(
            sample_size=8,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            block_out_channels=(WIDTH, WIDTH),
            layers_per_block=1,
            transformer_layers_per_block=(1, 2),
            cross_attention_dim=2 * WIDTH,
            attention_head_dim=(2, 2),
            norm_num_groups=4,
            use_linear_projection=True,
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=6 * 8 + WIDTH,
        )
        disturb(unet)
        pipe = StableDiffusionXLPipeline(
            vae=autoencoder(4, scaling_factor=0.13025),
            text_encoder=clip_encoder(tokenizer),
            text_encoder_2=CLIPTextModelWithProjection(config),
            tokenizer=tokenizer,
            tokenizer_2=tokenizer,
            unet=unet,
            scheduler=DDIMScheduler(
                beta_start=0.00085,
                beta_end=0.012,
                beta_schedule="scaled_linear",
                clip_sample=False,
                set_alpha_to_one=False,
                steps_offset=1,
            ),
            add_watermarker=False,
        )
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


@pytest.fixture(scope="session")
def flux_folders(recipe: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A `FluxPipeline` as `dev` (embedded guidance, dynamic shift) and as `schnell` (neither), and
    a `FluxKontextPipeline` as dev.
    """
    folder = tmp_path_factory.mktemp("tiny_flux")
    clip, t5 = recipe.clip_tokenizer(), recipe.t5_tokenizer()
    for name, dev, kind in (
        ("dev", True, FluxPipeline),
        ("schnell", False, FluxPipeline),
        ("kontext", True, FluxKontextPipeline),
    ):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            transformer = FluxTransformer2DModel(
                num_layers=2,
                num_single_layers=2,
                attention_head_dim=16,
                num_attention_heads=2,
                joint_attention_dim=recipe.WIDTH,
                pooled_projection_dim=WIDTH,
                guidance_embeds=dev,
                axes_dims_rope=(4, 6, 6),
            )
            disturb(transformer)
            pipe = kind(
                scheduler=FlowMatchEulerDiscreteScheduler(
                    shift=3.0 if dev else 1.0, use_dynamic_shifting=dev
                ),
                vae=autoencoder(16, shift_factor=0.1159, scaling_factor=0.3611),
                text_encoder=clip_encoder(clip),
                tokenizer=clip,
                text_encoder_2=recipe.t5_encoder(t5),
                tokenizer_2=t5,
                transformer=transformer,
            )
        pipe.to(torch.float16).save_pretrained(folder / name)
    return {name: folder / name for name in ("dev", "schnell", "kontext")}


@pytest.fixture(scope="session")
def flux_kontext_folder(flux_folders: dict[str, Path]) -> Path:
    """A `FluxKontextPipeline`."""
    return flux_folders["kontext"]


@pytest.fixture(scope="session")
def schnell_folder(flux_folders: dict[str, Path]) -> Path:
    """The second of them."""
    return flux_folders["schnell"]


@pytest.fixture(scope="session")
def chroma_folder(recipe: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `ChromaPipeline`."""
    folder = tmp_path_factory.mktemp("tiny_chroma")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        t5 = recipe.t5_tokenizer()
        transformer = ChromaTransformer2DModel(
            num_layers=2,
            num_single_layers=2,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=recipe.WIDTH,
            axes_dims_rope=(4, 6, 6),
            approximator_num_channels=16,
            approximator_hidden_dim=16,
            approximator_layers=1,
        )
        disturb(transformer)
        pipe = ChromaPipeline(
            scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
            vae=autoencoder(16, shift_factor=0.1159, scaling_factor=0.3611),
            text_encoder=recipe.t5_encoder(t5),
            tokenizer=t5,
            transformer=transformer,
        )
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
    "<|im_start|>assistant"
)
TYPED = "{% for m in messages %}[{{ m.role }}] {{ m.content[0].text }}{% endfor %}"
"""The template of messages whose content is a list of typed parts."""


def chat_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of bytes, with Qwen's special tokens and a chat template."""
    alphabet = sorted(ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*alphabet, *SPECIAL])}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[0],
        chat_template=CHAT,
    )


def qwen3_config(tokenizer: PreTrainedTokenizerFast, width: int, layers: int) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 8,
        num_key_value_heads=width // 8,
        head_dim=8,
        initializer_range=0.5,
    )


def gemma2_config(tokenizer: PreTrainedTokenizerFast) -> Gemma2Config:
    return Gemma2Config(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        initializer_range=0.5,
    )


def qwen_image_parts(words: int, **options: object) -> dict[str, Any]:
    """Text encoder, scheduler, autoencoder and transformer of Qwen-Image; the autoencoder has a
    factor of 4, and `options` are for the transformer.
    """
    encoder = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": words,
            "hidden_size": WIDTH,
            "intermediate_size": WIDTH,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "initializer_range": 0.5,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [1, 1, 2],
            },
        },
        vision_config={
            "depth": 1,
            "hidden_size": WIDTH,
            "intermediate_size": WIDTH,
            "num_heads": 2,
            "out_hidden_size": WIDTH,
            "patch_size": 4,
            "window_size": 16,
        },
        image_token_id=words - 2,
    )
    transformer = QwenImageTransformer2DModel(
        in_channels=16,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=WIDTH,
        axes_dims_rope=(4, 6, 6),
        **options,
    )
    disturb(transformer)
    return {
        "scheduler": FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9, shift_terminal=0.02
        ),
        "vae": autoencoder_of_videos(),
        "text_encoder": Qwen2_5_VLForConditionalGeneration(encoder),
        "transformer": transformer,
    }


@pytest.fixture(scope="session")
def qwen_image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `QwenImagePipeline`."""
    folder = tmp_path_factory.mktemp("tiny_qwen_image")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = chat_tokenizer()
        pipe = QwenImagePipeline(tokenizer=tokenizer, **qwen_image_parts(len(tokenizer)))
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


VISION = ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"]
SYSTEM = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content[0].text }}<|im_end|>\n"
    "{% endfor %}"
)
"""The template of Qwen's messages of typed parts."""


class PicturesProcessor(Qwen2VLProcessor):
    """Qwen's processor without videos, which need torchvision."""

    def __init__(
        self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None
    ) -> None:
        self.image_token = VISION[1]
        self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
        transformers.ProcessorMixin.__init__(
            self, image_processor, tokenizer, chat_template=chat_template
        )


# a pipeline's index names it as a component of transformers, which alone is loaded
PicturesProcessor.__module__ = "transformers"
for library in (transformers, sys.modules["transformers"]):  # it replaces itself when imported
    setattr(library, "PicturesProcessor", PicturesProcessor)  # noqa: B010


def pictures_processor() -> PicturesProcessor:
    """Of bytes, and of patches of 4 x 4 pixels, four of which are a token."""
    tokenizer = chat_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": VISION})
    images = Qwen2VLImageProcessor(patch_size=4, min_pixels=64, max_pixels=1024)
    return PicturesProcessor(images, tokenizer, SYSTEM)


@pytest.fixture(scope="session")
def qwen_image_edit_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `QwenImageEditPlusPipeline`, whose network reads pictures at time 0."""
    folder = tmp_path_factory.mktemp("tiny_qwen_image_edit")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        processor = pictures_processor()
        tokenizer = processor.tokenizer
        parts = qwen_image_parts(len(tokenizer), zero_cond_t=True)
        pipe = QwenImageEditPlusPipeline(tokenizer=tokenizer, processor=processor, **parts)
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


@pytest.fixture(scope="session")
def qwen_image_21_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `QwenImage21Pipeline`, whose autoencoder has the published factor, 16."""
    folder = tmp_path_factory.mktemp("tiny_qwen_image_21")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        processor = pictures_processor()
        small = {"hidden_size": WIDTH, "intermediate_size": WIDTH}
        encoder = Qwen3VLConfig(
            text_config=small
            | {
                "vocab_size": len(processor.tokenizer),
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "head_dim": 8,
                "initializer_range": 0.5,
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 1e6,
                    "mrope_section": [2, 1, 1],
                },
            },
            vision_config=small
            | {"depth": 1, "num_heads": 2, "out_hidden_size": WIDTH, "patch_size": 4},
        )
        transformer = QwenImage21Transformer2DModel(
            in_channels=8,
            out_channels=8,
            num_layers=2,
            attention_head_dim=16,
            num_attention_heads=2,
            context_in_dim=WIDTH,
            axes_dims_rope=(4, 6, 6),
        )
        disturb(transformer)
        pipe = QwenImage21Pipeline(
            scheduler=FlowMatchEulerDiscreteScheduler(
                use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9, shift_terminal=0.02
            ),
            vae=AutoencoderKLQwenImage21(
                base_dim=4,
                decoder_base_dim=6,
                z_dim=8,
                dim_mult=[1, 1, 2, 2, 2],
                num_res_blocks=1,
                latents_mean=[0.1, -0.2, 0.3, 0.0] * 2,
                latents_std=[1.5, 0.7, 1.0, 2.0] * 2,
            ),
            text_encoder=Qwen3VLForConditionalGeneration(encoder),
            processor=processor,
            transformer=transformer,
        )
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


@pytest.fixture(scope="session")
def z_image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `ZImagePipeline`, with a refiner of one layer for the image and one for the text."""
    folder = tmp_path_factory.mktemp("tiny_z_image")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = chat_tokenizer()
        encoder = qwen3_config(tokenizer, WIDTH, layers=2)
        transformer = ZImageTransformer2DModel(
            in_channels=16,
            dim=32,
            n_layers=2,
            n_refiner_layers=1,
            n_heads=2,
            n_kv_heads=2,
            cap_feat_dim=WIDTH,
            axes_dims=[4, 6, 6],
            axes_lens=[512, 32, 32],
        )
        disturb(transformer)
        pipe = ZImagePipeline(
            scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
            vae=autoencoder(16, shift_factor=0.1159, scaling_factor=0.3611),
            text_encoder=Qwen3Model(encoder),
            tokenizer=tokenizer,
            transformer=transformer,
        )
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


@pytest.fixture(scope="session")
def flux2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `Flux2KleinPipeline`, not distilled; its text encoder has the 28 layers that it reads."""
    folder = tmp_path_factory.mktemp("tiny_flux2")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = chat_tokenizer()
        encoder = qwen3_config(tokenizer, 8, layers=28)
        pipe = Flux2KleinPipeline(
            text_encoder=Qwen3ForCausalLM(encoder),
            tokenizer=tokenizer,
            **flux2_parts(guidance_embeds=False),
        )
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


@pytest.fixture(scope="session")
def flux3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `Flux3ModularPipeline`; its text encoder has the 32 layers that it reads."""
    return flux3_saved(Flux3ModularPipeline, tmp_path_factory.mktemp("tiny_flux3"))


@pytest.fixture(scope="session")
def flux3_distilled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `Flux3DistilledModularPipeline`."""
    return flux3_saved(Flux3DistilledModularPipeline, tmp_path_factory.mktemp("tiny_flux3_map"))


def flux3_saved(kind: type[Flux3ModularPipeline], folder: Path) -> Path:
    """A pipeline of this class, in a folder of `folder`; another folder has its prompt upsampler.

    The published processor, which needs torchvision, is LLaVA's here: only text passes it.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = chat_tokenizer()
        encoder = Qwen3VLConfig(
            text_config=qwen3_config(tokenizer, 8, layers=32).to_dict()
            | {
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 1e4,
                    "mrope_section": [2, 1, 1],
                }
            },
            vision_config={
                "depth": 1,
                "hidden_size": 8,
                "intermediate_size": 8,
                "num_heads": 1,
                "out_hidden_size": 8,
                "deepstack_visual_indexes": [0],
            },
        )
        transformer = Flux3Transformer2DModel(
            in_channels=16,
            cond_in_channels=16,
            num_layers=2,
            num_single_layers=2,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=64,
            axes_dims_rope=(4, 4, 4, 4),
            flow_map=kind is Flux3DistilledModularPipeline,
        )
        disturb(transformer)
        pipe = kind()
        pipe.update_components(
            text_encoder=Qwen3VLForConditionalGeneration(encoder),
            tokenizer=LlavaProcessor(
                image_processor=CLIPImageProcessorPil(),
                tokenizer=tokenizer,
                chat_template=tokenizer.chat_template,
            ),
            transformer=transformer,
            vae=flux2_vae(),
        )
    pipe.to(torch.float16)
    save_pipeline(pipe, folder / "pipe")
    return folder / "pipe"


def flux2_parts(*, guidance_embeds: bool) -> dict[str, Any]:
    """Scheduler, autoencoder and transformer of FLUX.2."""
    transformer = Flux2Transformer2DModel(
        in_channels=16,
        num_layers=2,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=24,
        axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=guidance_embeds,
    )
    disturb(transformer)
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True)
    return {"scheduler": scheduler, "vae": flux2_vae(), "transformer": transformer}


def flux2_vae() -> AutoencoderKLFlux2:
    vae = AutoencoderKLFlux2(
        block_out_channels=(4, 4, 8, 8),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=2,
        sample_size=64,
    )
    vae.bn.running_mean.uniform_(-0.5, 0.5)
    vae.bn.running_var.uniform_(0.5, 2.0)
    return vae


@pytest.fixture(scope="session")
def flux2_dev_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `Flux2Pipeline`; its text encoder has the 30 layers that it reads.

    The published processor, which needs torchvision, is a tokenizer here: only text passes it.
    """
    folder = tmp_path_factory.mktemp("tiny_flux2_dev")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = chat_tokenizer()
        tokenizer.chat_template = TYPED
        small = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1, "head_dim": 8}
        encoder = Mistral3Config(
            text_config=small
            | {
                "model_type": "mistral",
                "vocab_size": len(tokenizer),
                "num_hidden_layers": 30,
                "num_key_value_heads": 1,
                "initializer_range": 0.5,
            },
            vision_config=small
            | {"model_type": "pixtral", "num_hidden_layers": 1, "image_size": 28, "patch_size": 14},
        )
        pipe = Flux2Pipeline(
            text_encoder=Mistral3ForConditionalGeneration(encoder),
            tokenizer=tokenizer,
            **flux2_parts(guidance_embeds=True),
        )
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


@pytest.fixture(scope="session")
def sana_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `SanaPipeline` with the norms of SANA-1.5; its autoencoder has a factor of 8."""
    folder = tmp_path_factory.mktemp("tiny_sana")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = chat_tokenizer()
        transformer = SanaTransformer2DModel(
            in_channels=8,
            out_channels=8,
            num_attention_heads=2,
            attention_head_dim=16,
            num_layers=2,
            num_cross_attention_heads=2,
            cross_attention_head_dim=16,
            cross_attention_dim=32,
            caption_channels=WIDTH,
            sample_size=8,
            qk_norm="rms_norm_across_heads",
        )
        disturb(transformer)
        blocks = ("ResBlock", "ResBlock", "ResBlock", "EfficientViTBlock")
        widths, layers, scales = (8, 8, 16, 16), (1, 1, 1, 1), ((), (), (), (5,))
        pipe = SanaPipeline(
            scheduler=DPMSolverMultistepScheduler(
                flow_shift=3.0, use_flow_sigmas=True, prediction_type="flow_prediction"
            ),
            vae=AutoencoderDC(
                latent_channels=8,
                attention_head_dim=8,
                encoder_block_types=blocks,
                decoder_block_types=blocks,
                encoder_block_out_channels=widths,
                decoder_block_out_channels=widths,
                encoder_layers_per_block=layers,
                decoder_layers_per_block=layers,
                encoder_qkv_multiscales=scales,
                decoder_qkv_multiscales=scales,
                downsample_block_type="conv",
                upsample_block_type="interpolate",
                decoder_act_fns="silu",
                scaling_factor=0.41407,
            ),
            text_encoder=Gemma2Model(gemma2_config(tokenizer)),
            tokenizer=tokenizer,
            transformer=transformer,
        )
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


@pytest.fixture(scope="session")
def krea2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `Krea2Pipeline` of the base model, whose autoencoder has a factor of 4; its transformer
    reads three states of the text encoder, and fewer heads have keys and values.
    """
    folder = tmp_path_factory.mktemp("tiny_krea2")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = chat_tokenizer()
        small = {"hidden_size": WIDTH, "intermediate_size": WIDTH}
        encoder = Qwen3VLConfig(
            text_config=small
            | {
                "vocab_size": len(tokenizer),
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "head_dim": 8,
                "initializer_range": 0.5,
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 5e6,
                    "mrope_section": [2, 1, 1],
                    "mrope_interleaved": True,
                },
            },
            vision_config=small
            | {
                "depth": 1,
                "num_heads": 2,
                "out_hidden_size": WIDTH,
                "deepstack_visual_indexes": [0],
                "num_position_embeddings": 16,
            },
        )
        transformer = Krea2Transformer2DModel(
            in_channels=16,
            num_layers=2,
            attention_head_dim=16,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=32,
            timestep_embed_dim=16,
            text_hidden_dim=WIDTH,
            num_text_layers=3,
            text_num_attention_heads=2,
            text_num_key_value_heads=2,
            text_intermediate_size=WIDTH,
            num_layerwise_text_blocks=1,
            num_refiner_text_blocks=1,
            axes_dims_rope=(4, 6, 6),
        )
        disturb(transformer)
        pipe = Krea2Pipeline(
            scheduler=FlowMatchEulerDiscreteScheduler(
                use_dynamic_shifting=True, max_image_seq_len=6400
            ),
            vae=autoencoder_of_videos(),
            text_encoder=Qwen3VLModel(encoder),
            tokenizer=tokenizer,
            transformer=transformer,
            text_encoder_select_layers=(0, 1, 2),
        )
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


@pytest.fixture(scope="session")
def ernie_image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An `ErnieImagePipeline` without the language model that rewrites prompts."""
    folder = tmp_path_factory.mktemp("tiny_ernie_image")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = chat_tokenizer()
        small = {"hidden_size": WIDTH, "intermediate_size": WIDTH, "head_dim": 8}
        small["num_attention_heads"] = 2
        encoder = Mistral3Config(
            text_config=small
            | {
                "model_type": "ministral3",
                "vocab_size": len(tokenizer),
                "num_hidden_layers": 2,
                "num_key_value_heads": 1,
                "initializer_range": 0.5,
            },
            vision_config=small
            | {"model_type": "pixtral", "num_hidden_layers": 1, "image_size": 28, "patch_size": 14},
        )
        transformer = ErnieImageTransformer2DModel(
            hidden_size=32,
            num_attention_heads=2,
            num_layers=2,
            ffn_hidden_size=32,
            in_channels=16,
            out_channels=16,
            text_in_dim=WIDTH,
            rope_axes_dim=(4, 6, 6),
        )
        disturb(transformer)
        pipe = ErnieImagePipeline(
            text_encoder=Mistral3Model(encoder),
            tokenizer=tokenizer,
            **flux2_parts(guidance_embeds=False)
            | {
                "scheduler": FlowMatchEulerDiscreteScheduler(shift=4.0),
                "transformer": transformer,
            },
        )
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


@pytest.fixture(scope="session")
def lumina2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `Lumina2Pipeline`, with a refiner of one layer for the image and one for the text."""
    folder = tmp_path_factory.mktemp("tiny_lumina2")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = chat_tokenizer()
        transformer = Lumina2Transformer2DModel(
            in_channels=16,
            hidden_size=32,
            num_layers=2,
            num_refiner_layers=1,
            num_attention_heads=2,
            num_kv_heads=1,
            multiple_of=16,
            axes_dim_rope=(4, 6, 6),
            axes_lens=(300, 32, 32),
            cap_feat_dim=WIDTH,
        )
        disturb(transformer)
        pipe = Lumina2Pipeline(
            scheduler=FlowMatchEulerDiscreteScheduler(shift=6.0),
            vae=autoencoder(16, shift_factor=0.1159, scaling_factor=0.3611),
            text_encoder=Gemma2Model(gemma2_config(tokenizer)),
            tokenizer=tokenizer,
            transformer=transformer,
        )
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


T5: Mapping[str, Any] = {
    **{"d_model": WIDTH, "d_kv": 8, "d_ff": WIDTH},
    **{"num_layers": 1, "num_heads": 2, "initializer_factor": 2.0},
}
"""Sizes of a T5 or UMT5 encoder."""


def ltx_pipeline(folder: Path, **decoder: Any) -> Path:
    """An `LTXPipeline`, whose autoencoder has a factor of 4 in space and of 2 in time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = chat_tokenizer()
        encoder = T5Config(vocab_size=len(tokenizer), **T5)
        transformer = LTXVideoTransformer3DModel(
            in_channels=4,
            out_channels=4,
            num_attention_heads=2,
            attention_head_dim=16,
            cross_attention_dim=32,
            num_layers=2,
            caption_channels=WIDTH,
        )
        disturb(transformer)
        vae = AutoencoderKLLTXVideo(
            latent_channels=4,
            block_out_channels=(8, 8),
            down_block_types=("LTXVideoDownBlock3D",) * 2,
            decoder_block_out_channels=(8, 8),
            layers_per_block=(1, 1, 1),
            decoder_layers_per_block=(1, 1, 1),
            spatio_temporal_scaling=(True, False),
            decoder_spatio_temporal_scaling=(True, False),
            **{"decoder_inject_noise": (False,) * 3, **decoder},
            downsample_type=("conv",) * 2,
            upsample_residual=(False,) * 2,
            upsample_factor=(1, 1),
            patch_size=2,
            scaling_factor=1.5,
        )
        disturb(vae)
        vae.latents_mean.copy_(torch.tensor([0.1, -0.2, 0.3, 0.0]))
        vae.latents_std.copy_(torch.tensor([1.5, 0.7, 1.0, 2.0]))
        pipe = LTXPipeline(
            scheduler=FlowMatchEulerDiscreteScheduler(
                use_dynamic_shifting=True,
                base_shift=0.95,
                max_shift=2.05,
                base_image_seq_len=1024,
                max_image_seq_len=4096,
                shift_terminal=0.1,
            ),
            vae=vae,
            text_encoder=T5EncoderModel(encoder),
            tokenizer=tokenizer,
            transformer=transformer,
        )
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


@pytest.fixture(scope="session")
def ltx_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As LTX-Video 0.9."""
    return ltx_pipeline(tmp_path_factory.mktemp("tiny_ltx"))


@pytest.fixture(scope="session")
def ltx_conditioned_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As 0.9.1, whose autoencoder decodes at a time and adds noise."""
    folder = tmp_path_factory.mktemp("tiny_ltx_conditioned")
    noisy = {"timestep_conditioning": True, "decoder_inject_noise": (True,) * 3}
    return ltx_pipeline(folder, **noisy)


def wan_network(**options: Any) -> WanTransformer3DModel:
    network = WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        **{"in_channels": 4, **options},
        out_channels=4,
        text_dim=WIDTH,
        freq_dim=16,
        ffn_dim=32,
        num_layers=2,
    )
    disturb(network)
    return network


def wan_pipeline(folder: Path, kind: type = WanPipeline, **parts: Any) -> Path:
    """A pipeline of Wan's, whose autoencoder has a factor of 4 in space and of 2 in time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = chat_tokenizer()
        encoder = UMT5Config(vocab_size=len(tokenizer), **T5)
        made = {name: part() if isinstance(part, partial) else part for name, part in parts.items()}
        pipe = kind(
            scheduler=UniPCMultistepScheduler(
                prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
            ),
            vae=AutoencoderKLWan(
                base_dim=8,
                z_dim=4,
                dim_mult=[1, 2, 2],
                num_res_blocks=1,
                temperal_downsample=[False, True],
                latents_mean=[0.1, -0.2, 0.3, 0.0],
                latents_std=[1.5, 0.7, 1.0, 2.0],
                scale_factor_spatial=4,
                scale_factor_temporal=2,
            ),
            text_encoder=UMT5EncoderModel(encoder),
            tokenizer=tokenizer,
            **made,
        )
    pipe.to(torch.float16).save_pretrained(folder / "pipe")
    return folder / "pipe"


PAIR = {"transformer_2": partial(wan_network), "boundary_ratio": 0.75}
"""Of three steps of four one is of low noise."""
SEEN = {"in_channels": 10}
"""Channels of the sample, of its first frame, and two that say which it is."""


@pytest.fixture(scope="session")
def wan_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `WanPipeline` with one transformer."""
    return wan_pipeline(tmp_path_factory.mktemp("tiny_wan"), transformer=partial(wan_network))


@pytest.fixture(scope="session")
def wan22_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `WanPipeline` with two."""
    folder = tmp_path_factory.mktemp("tiny_wan22")
    return wan_pipeline(folder, transformer=partial(wan_network), **PAIR)


@pytest.fixture(scope="session")
def wan_i2v_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `WanImageToVideoPipeline` as of Wan 2.2, with two transformers."""
    network = partial(wan_network, **SEEN)
    pair = {**PAIR, "transformer": network, "transformer_2": network}
    folder = tmp_path_factory.mktemp("tiny_wan_i2v")
    return wan_pipeline(folder, WanImageToVideoPipeline, **pair)


@pytest.fixture(scope="session")
def wan21_i2v_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One as of Wan 2.1, with one transformer and an image encoder."""
    config = CLIPVisionConfig(
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=32,
        patch_size=16,
        initializer_factor=20.0,
    )
    return wan_pipeline(
        tmp_path_factory.mktemp("tiny_wan21_i2v"),
        WanImageToVideoPipeline,
        transformer=partial(wan_network, **SEEN, image_dim=WIDTH, added_kv_proj_dim=32),
        image_encoder=partial(CLIPVisionModel, config),
        image_processor=CLIPImageProcessor(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
        ),
    )


EDITING = tuple(family.option for family in FAMILIES if family.pictures)
"""Options of models whose prompts have pictures."""
FOLDERS: Mapping[str, str] = {
    "sdxl": "sdxl_folder",
    "flux_schnell": "schnell_folder",
    "flux_kontext": "flux_kontext_folder",
    "chroma": "chroma_folder",
    "qwen_image": "qwen_image_folder",
    "qwen_image_edit": "qwen_image_edit_folder",
    "qwen_image_21": "qwen_image_21_folder",
    "z_image": "z_image_folder",
    "z_image_turbo": "z_image_folder",
    "flux2_klein": "flux2_folder",
    "flux2_dev": "flux2_dev_folder",
    "flux3_klein": "flux3_folder",
    "flux3_klein_distilled": "flux3_distilled_folder",
    "sana": "sana_folder",
    "krea2": "krea2_folder",
    "ernie_image": "ernie_image_folder",
    "lumina2": "lumina2_folder",
    "ltx": "ltx_folder",
    "wan": "wan_folder",
    "wan22": "wan22_folder",
    "wan_i2v": "wan_i2v_folder",
}
"""Of each family without a small model that ships, by its option of `model`."""


@pytest.fixture
def small(request: pytest.FixtureRequest) -> Callable[[str], list[str]]:
    """What to type beside an option of `model` so that it is small."""

    def words(model: str) -> list[str]:
        if model not in FOLDERS:
            return []
        folder = request.getfixturevalue(FOLDERS[model])
        length = [] if model == "sdxl" else ["model.text_tokens=16"]
        length += ["model.frames=5"] if model.startswith(("ltx", "wan")) else []
        # as many steps as the tests of pairs take
        length += ["model.map_steps=6"] if model == "flux3_klein_distilled" else []
        return [f"model.path={folder}", "model.size=64", "prompt_cache=null", *length]

    return words
