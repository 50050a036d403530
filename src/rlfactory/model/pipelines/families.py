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
        target: its adapter.
        network: the class of the network that is trained.
        option: the option of the group `model` for its full-size models.
        small: that of the small model that ships; None where none does.
        levels: the kind of `schedule` whose noise levels the pipeline has by default, of a flow.
        recipes: an option whose recipes are this family's too, where it has none of its own.
        optional: parts that it works without, beside those that no adapter calls.
        pictures: whether each prompt has a picture, whose latents are tokens beside the sample's.
    """

    pipeline: str
    target: str
    network: str
    option: str
    small: str | None = None
    levels: Literal["uniform", "diffusers", "unipc", "dpm"] = "uniform"
    recipes: str | None = None
    optional: tuple[str, ...] = ()
    pictures: bool = False


FAMILIES = (
    Family(
        pipeline="StableDiffusionPipeline",
        target="rlfactory.model.sd.SD",
        network="UNet2DConditionModel",
        option="sd14",
        small="tiny_sd",
    ),
    Family(
        pipeline="StableDiffusionXLPipeline",
        target="rlfactory.model.sdxl.SDXL",
        network="UNet2DConditionModel",
        option="sdxl",
        recipes="sd14",
    ),
    Family(
        pipeline="StableDiffusion3Pipeline",
        target="rlfactory.model.sd3.SD3",
        network="SD3Transformer2DModel",
        option="sd35",
        small="tiny_sd3",
        levels="diffusers",
        optional=("text_encoder_3", "tokenizer_3"),
    ),
    Family(
        pipeline="FluxPipeline",
        target="rlfactory.model.flux.Flux",
        network="FluxTransformer2DModel",
        option="flux",
        small="tiny_flux",
    ),
    Family(
        pipeline="FluxKontextPipeline",
        target="rlfactory.model.flux_kontext.FluxKontext",
        network="FluxTransformer2DModel",
        option="flux_kontext",
        recipes="flux",
        pictures=True,
    ),
    Family(
        pipeline="QwenImagePipeline",
        target="rlfactory.model.qwen_image.QwenImage",
        network="QwenImageTransformer2DModel",
        option="qwen_image",
    ),
    Family(
        pipeline="ZImagePipeline",
        target="rlfactory.model.z_image.ZImage",
        network="ZImageTransformer2DModel",
        option="z_image",
    ),
    Family(
        pipeline="Flux2KleinPipeline",
        target="rlfactory.model.flux2.Flux2Klein",
        network="Flux2Transformer2DModel",
        option="flux2_klein",
    ),
    Family(
        pipeline="Flux2Pipeline",
        target="rlfactory.model.flux2_dev.Flux2Dev",
        network="Flux2Transformer2DModel",
        option="flux2_dev",
        recipes="flux",
    ),
    Family(
        pipeline="SanaPipeline",
        target="rlfactory.model.sana.Sana",
        network="SanaTransformer2DModel",
        option="sana",
        levels="dpm",
    ),
    Family(
        pipeline="WanPipeline",
        target="rlfactory.model.wan.Wan",
        network="WanTransformer3DModel",
        option="wan",
        levels="unipc",
    ),
)
BY_PIPELINE = {family.pipeline: family for family in FAMILIES}
BY_TARGET = {family.target: family for family in FAMILIES}
NO_FAMILY = {
    "SanaSprintPipeline": (
        "a consistency model in TrigFlow's time (SCMScheduler), no rectified flow: no dynamics here"
        " sample it; type model=sana with the model that it was distilled from"
    ),
}
"""Pipelines that are close to a family's and are none, and why."""
