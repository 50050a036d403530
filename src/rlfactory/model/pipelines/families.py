"""The families of image models: the pipeline, the networks and the options that belong together.

Torch-free, for checks of a configuration. A new family has a row here
(docs/extend/model.md).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Family:
    """A family of image models that one adapter loads.

    Attributes:
        pipeline: its text-to-image pipeline class of diffusers.
        adapter: the module and class of its adapter, in this package.
        option: the option of the group `model` for its full-size models.
        small: that of the small model that ships; None where none does.
        levels: the kind of `schedule` whose noise levels the pipeline has by default, of a flow.
        recipes: an option whose recipes are this family's too, where it has none of its own.
        optional: parts that it works without, beside those that no adapter calls.
        pictures: whether each prompt has a picture.
        part: a component that tells it from another family of its pipeline, which lacks it.
        patch: latents of an image token along an edge; None: the network's `patch_size`.
        ids: parts of its hub ids, in lower case; of several that fit, the longest counts.
        distilled: hub ids of its models that were distilled, and their few sampling steps.
        steps: to how many sampling steps all of its models were distilled; None where to none.
        converts: whose names of adapters diffusers' loader of the pipeline reads: `kohya`, and the
            `original` code's.
    """

    pipeline: str
    adapter: str
    option: str
    small: str | None = None
    levels: Literal["uniform", "diffusers", "unipc", "dpm"] = "uniform"
    recipes: str | None = None
    optional: tuple[str, ...] = ()
    pictures: bool = False
    part: str | None = None
    patch: int | None = 2
    ids: tuple[str, ...] = ()
    distilled: Mapping[str, int] = field(default_factory=dict)
    steps: int | None = None
    converts: tuple[str, ...] = ("kohya", "original")

    @property
    def network(self) -> str:
        """The component that is trained."""
        return "unet" if self.pipeline in UNETS else "transformer"

    @property
    def modular(self) -> bool:
        """Whether its pipeline is one of blocks (`pipelines/modular.py`)."""
        return self.pipeline.endswith("ModularPipeline")

    @property
    def target(self) -> str:
        """The import path of its adapter."""
        return f"rlfactory.model.{self.adapter}"


UNETS = ("StableDiffusionPipeline", "StableDiffusionXLPipeline")
"""Pipelines whose network is no transformer."""

FAMILIES = (
    Family(
        "StableDiffusionPipeline",
        "sd.SD",
        "sd14",
        small="tiny_sd",
        patch=1,
        distilled={"stabilityai/sd-turbo": 4},
    ),
    Family(
        "StableDiffusionXLPipeline",
        "sdxl.SDXL",
        "sdxl",
        recipes="sd14",
        patch=1,
        ids=("stable-diffusion-xl", "sdxl"),
        distilled={"stabilityai/sdxl-turbo": 4},
    ),
    Family(
        "StableDiffusion3Pipeline",
        "sd3.SD3",
        "sd35",
        small="tiny_sd3",
        levels="diffusers",
        optional=("text_encoder_3", "tokenizer_3"),
        patch=None,
        ids=("stable-diffusion-3", "sd3"),
        distilled={"stabilityai/stable-diffusion-3.5-large-turbo": 4},
        converts=(),
    ),
    Family(
        "FluxPipeline",
        "flux.Flux",
        "flux",
        small="tiny_flux",
        ids=("flux",),
        distilled={"black-forest-labs/FLUX.1-schnell": 4},
    ),
    Family(
        "FluxKontextPipeline",
        "flux_kontext.FluxKontext",
        "flux_kontext",
        recipes="flux",
        pictures=True,
        ids=("kontext",),
    ),
    Family("ChromaPipeline", "chroma.Chroma", "chroma", recipes="z_image", ids=("chroma",)),
    Family("QwenImagePipeline", "qwen_image.QwenImage", "qwen_image", ids=("qwen-image",)),
    Family(
        "QwenImageEditPlusPipeline",
        "qwen_image_edit.QwenImageEdit",
        "qwen_image_edit",
        recipes="qwen_image",
        pictures=True,
        ids=("qwen-image-edit-2",),
    ),
    Family(
        "QwenImage21Pipeline",
        "qwen_image_21.QwenImage21",
        "qwen_image_21",
        recipes="z_image",
        ids=("qwen-image-2.1",),
    ),
    Family(
        "ZImagePipeline",
        "z_image.ZImage",
        "z_image",
        ids=("z-image",),
        distilled={"Tongyi-MAI/Z-Image-Turbo": 8},
    ),
    Family(
        "Flux2KleinPipeline",
        "flux2.Flux2Klein",
        "flux2_klein",
        ids=("flux.2-klein",),
        distilled={"black-forest-labs/FLUX.2-klein-4B": 4, "black-forest-labs/FLUX.2-klein-9B": 4},
    ),
    Family("Flux2Pipeline", "flux2_dev.Flux2Dev", "flux2_dev", recipes="flux", ids=("flux.2-dev",)),
    Family(
        "Flux3ModularPipeline",
        "flux3.Flux3Klein",
        "flux3_klein",
        ids=("flux-3-image-klein-base",),
        converts=("original",),
    ),
    Family(
        "Flux3DistilledModularPipeline",
        "flux3.Flux3KleinDistilled",
        "flux3_klein_distilled",
        recipes="flux3_klein",
        steps=16,
        ids=("flux-3-image-klein",),
        distilled={"black-forest-labs/flux-3-image-klein": 16},
        converts=("original",),
    ),
    Family("SanaPipeline", "sana.Sana", "sana", levels="dpm", patch=1, ids=("/sana",), converts=()),
    Family(
        "Krea2Pipeline",
        "krea2.Krea2",
        "krea2",
        recipes="z_image",
        ids=("krea-2", "krea2"),
        distilled={"krea/Krea-2-Turbo": 8},
        converts=("original",),
    ),
    Family(
        "ErnieImagePipeline",
        "ernie_image.ErnieImage",
        "ernie_image",
        recipes="z_image",
        optional=("pe", "pe_tokenizer"),
        ids=("ernie-image",),
        distilled={"baidu/ERNIE-Image-Turbo": 8},
        converts=("original",),
    ),
    Family(
        "Lumina2Pipeline",
        "lumina2.Lumina2",
        "lumina2",
        ids=("lumina-image-2", "lumina2"),
        converts=("original",),
    ),
    Family("LTXPipeline", "ltx.LTX", "ltx", patch=1, ids=("ltx-video",), converts=("original",)),
    Family("WanPipeline", "wan.Wan", "wan", levels="unipc", ids=("wan2",)),
    Family(
        "WanPipeline",
        "wan22.Wan22",
        "wan22",
        levels="unipc",
        recipes="wan",
        part="transformer_2",
        ids=("wan2.2-t2v",),
    ),
    Family(
        "WanImageToVideoPipeline",
        "wan_i2v.WanI2V",
        "wan_i2v",
        levels="unipc",
        recipes="wan",
        pictures=True,
        ids=("wan2.1-i2v", "wan2.2-i2v"),
    ),
)
BY_PIPELINE = {family.pipeline: family for family in FAMILIES if family.part is None}
BY_TARGET = {family.target: family for family in FAMILIES}


def family_of(pipeline: str, parts: Collection[str]) -> Family:
    """The family of a known pipeline that has these parts."""
    own = [f for f in FAMILIES if f.pipeline == pipeline and f.part is not None and f.part in parts]
    return (own or [BY_PIPELINE[pipeline]])[0]


NO_FAMILY = {
    "SanaSprintPipeline": (
        "a consistency model in TrigFlow's time (SCMScheduler), no rectified flow: no dynamics here"
        " sample it; type model=sana with the model that it was distilled from"
    ),
    "QwenImageEditPipeline": (
        "the first Qwen-Image-Edit, which shows its picture in another way; type"
        " model=qwen_image_edit with a later one"
    ),
    "HunyuanImagePipeline": (
        "its guidance remembers earlier steps, so that a step can't be replayed by itself, and its"
        " pipeline loads no LoRA"
    ),
}
"""Pipelines that are close to a family's and are none, and why."""
