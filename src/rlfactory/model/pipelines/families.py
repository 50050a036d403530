"""The families of image models: the pipeline, the networks and the options that belong together.

Torch-free, for checks of a configuration. A new family has a row here
(docs/extend/model.md).
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Family:
    """A family of image models that one adapter loads.

    Attributes:
        pipeline: its text-to-image pipeline class of diffusers.
        adapter: the module and class of its adapter, in this package.
        network: the class of the network that is trained.
        option: the option of the group `model` for its full-size models.
        small: that of the small model that ships; None where none does.
        levels: the kind of `schedule` whose noise levels the pipeline has by default, of a flow.
        recipes: an option whose recipes are this family's too, where it has none of its own.
        optional: parts that it works without, beside those that no adapter calls.
        pictures: whether each prompt has a picture, whose latents are tokens beside the sample's.
        patch: edge in latents of what image sizes are multiples of; None: the network says.
        ids: parts of the hub ids of its models, in lower case; of several families' the longest
            that an id has counts.
        steps: to how many sampling steps all of its models were distilled; None where to none.
    """

    pipeline: str
    adapter: str
    network: str
    option: str
    small: str | None = None
    levels: Literal["uniform", "diffusers", "unipc", "dpm"] = "uniform"
    recipes: str | None = None
    optional: tuple[str, ...] = ()
    pictures: bool = False
    patch: int | None = 2
    ids: tuple[str, ...] = ()
    steps: int | None = None

    @property
    def modular(self) -> bool:
        """Whether its pipeline is one of blocks (`pipelines/modular.py`)."""
        return self.pipeline.endswith("ModularPipeline")

    @property
    def target(self) -> str:
        """The import path of its adapter."""
        return f"rlfactory.model.{self.adapter}"


FAMILIES = (
    Family(
        "StableDiffusionPipeline",
        "sd.SD",
        "UNet2DConditionModel",
        "sd14",
        small="tiny_sd",
        patch=1,
    ),
    Family(
        "StableDiffusionXLPipeline",
        "sdxl.SDXL",
        "UNet2DConditionModel",
        "sdxl",
        recipes="sd14",
        patch=1,
        ids=("stable-diffusion-xl", "sdxl"),
    ),
    Family(
        "StableDiffusion3Pipeline",
        "sd3.SD3",
        "SD3Transformer2DModel",
        "sd35",
        small="tiny_sd3",
        levels="diffusers",
        optional=("text_encoder_3", "tokenizer_3"),
        patch=None,
        ids=("stable-diffusion-3", "sd3"),
    ),
    Family(
        "FluxPipeline",
        "flux.Flux",
        "FluxTransformer2DModel",
        "flux",
        small="tiny_flux",
        ids=("flux",),
    ),
    Family(
        "FluxKontextPipeline",
        "flux_kontext.FluxKontext",
        "FluxTransformer2DModel",
        "flux_kontext",
        recipes="flux",
        pictures=True,
        ids=("kontext",),
    ),
    Family(
        "ChromaPipeline",
        "chroma.Chroma",
        "ChromaTransformer2DModel",
        "chroma",
        recipes="z_image",
        ids=("chroma",),
    ),
    Family(
        "QwenImagePipeline",
        "qwen_image.QwenImage",
        "QwenImageTransformer2DModel",
        "qwen_image",
        ids=("qwen-image",),
    ),
    Family(
        "QwenImageEditPlusPipeline",
        "qwen_image_edit.QwenImageEdit",
        "QwenImageTransformer2DModel",
        "qwen_image_edit",
        recipes="qwen_image",
        pictures=True,
        ids=("qwen-image-edit-2",),
    ),
    Family(
        "QwenImage21Pipeline",
        "qwen_image_21.QwenImage21",
        "QwenImage21Transformer2DModel",
        "qwen_image_21",
        recipes="z_image",
        ids=("qwen-image-2.1",),
    ),
    Family(
        "ZImagePipeline",
        "z_image.ZImage",
        "ZImageTransformer2DModel",
        "z_image",
        ids=("z-image",),
    ),
    Family(
        "Flux2KleinPipeline",
        "flux2.Flux2Klein",
        "Flux2Transformer2DModel",
        "flux2_klein",
        ids=("flux.2-klein",),
    ),
    Family(
        "Flux2Pipeline",
        "flux2_dev.Flux2Dev",
        "Flux2Transformer2DModel",
        "flux2_dev",
        recipes="flux",
        ids=("flux.2-dev",),
    ),
    Family(
        "Flux3ModularPipeline",
        "flux3.Flux3Klein",
        "Flux3Transformer2DModel",
        "flux3_klein",
        ids=("flux-3-image-klein-base",),
    ),
    Family(
        "Flux3DistilledModularPipeline",
        "flux3.Flux3KleinDistilled",
        "Flux3Transformer2DModel",
        "flux3_klein_distilled",
        recipes="flux3_klein",
        steps=16,
        ids=("flux-3-image-klein",),
    ),
    Family(
        "SanaPipeline",
        "sana.Sana",
        "SanaTransformer2DModel",
        "sana",
        levels="dpm",
        patch=1,
        ids=("/sana",),
    ),
    Family("WanPipeline", "wan.Wan", "WanTransformer3DModel", "wan", levels="unipc", ids=("wan2",)),
)
BY_PIPELINE = {family.pipeline: family for family in FAMILIES}
BY_TARGET = {family.target: family for family in FAMILIES}
NO_FAMILY = {
    "SanaSprintPipeline": (
        "a consistency model in TrigFlow's time (SCMScheduler), no rectified flow: no dynamics here"
        " sample it; type model=sana with the model that it was distilled from"
    ),
    "QwenImageEditPipeline": (
        "the first Qwen-Image-Edit, which shows its picture in another way; type"
        " model=qwen_image_edit with a later one"
    ),
}
"""Pipelines that are close to a family's and are none, and why."""
