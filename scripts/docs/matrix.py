"""Pairs of image models and algorithms: the families, and what a plan refuses.

`tests/scripts/test_matrix.py` trains each allowed pair and holds that a plan refuses the others;
docs/options.md names those.
"""

from collections.abc import Mapping
from pathlib import Path

from rlfactory.config.options import options
from rlfactory.model.pipelines import families

PAIRS = Path(__file__).parents[2] / "tests" / "data" / "image_pairs.jsonl"
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "Stable Diffusion 1, 2": ("tiny_sd", "sd14", "sd15"),
    "Stable Diffusion XL": ("sdxl",),
    "Stable Diffusion 3, 3.5": ("tiny_sd3", "sd35"),
    "FLUX.1": ("tiny_flux", "flux"),
    "FLUX.1 schnell": ("flux_schnell",),
    "FLUX.1 Kontext": ("flux_kontext",),
    "Chroma": ("chroma",),
    "Qwen-Image": ("qwen_image",),
    "Qwen-Image-Edit": ("qwen_image_edit",),
    "Qwen-Image 2.1": ("qwen_image_21",),
    "Z-Image": ("z_image",),
    "Z-Image-Turbo": ("z_image_turbo",),
    "FLUX.2 klein": ("flux2_klein",),
    "FLUX.2 dev": ("flux2_dev",),
    "FLUX.3 klein base": ("flux3_klein",),
    "FLUX.3 klein": ("flux3_klein_distilled",),
    "SANA": ("sana",),
    "Krea 2": ("krea2",),
    "ERNIE-Image": ("ernie_image",),
    "Lumina-Image 2.0": ("lumina2",),
    "LTX-Video (video)": ("ltx",),
    "Wan (video)": ("wan",),
    "Wan 2.2 A14B (video)": ("wan22",),
    "Wan (a picture's video)": ("wan_i2v",),
}
"""The options of `model` of each family, the one that tests train first."""
TEXTS = frozenset(
    name for name, file in options("algo").items() if "/dynamics: token" in file.read_text()
)
"""Algorithms that learn from texts."""
FINAL = frozenset(("awm", "crd", "dgpo", "diffusion_dpo", "diffusion_dpo_offline", "nft", "vgrpo"))
"""Algorithms whose loss is that of flow matching on final samples."""
EDITING = tuple(family.option for family in families.FAMILIES if family.pictures)
"""Options of models whose prompts have pictures."""
REFUSED: Mapping[str, frozenset[str]] = {
    "Stable Diffusion 1, 2": frozenset(["grpo_guard"]),  # derived for the steps of flow_sde
    "Stable Diffusion XL": frozenset(["grpo_guard"]),
    "FLUX.1 schnell": FINAL,  # distilled to few steps, which the loss undoes
    "Z-Image-Turbo": FINAL,
    "FLUX.3 klein": FINAL,
    # pairs are images, and the gradient is that of an image's reward
    "LTX-Video (video)": frozenset(["diffusion_dpo_offline", "draft", "refl"]),
    "Wan (video)": frozenset(["diffusion_dpo_offline", "draft", "refl"]),
    "Wan 2.2 A14B (video)": frozenset(["diffusion_dpo_offline", "draft", "refl"]),
    "Wan (a picture's video)": frozenset(["diffusion_dpo_offline", "draft", "refl"]),
}


def algorithms() -> tuple[str, ...]:
    """Those that learn from images without a teacher."""
    return tuple(name for name in options("algo") if name not in TEXTS | {"opd"})


def data(model: str, algorithm: str) -> tuple[str, ...]:
    """The prompts of an algorithm that learns from images of the data; a reward with a gradient."""
    if algorithm in ("draft", "refl"):
        return ("reward=jpeg_standin", "scoring.offload=false")
    if algorithm != "diffusion_dpo_offline":
        return ()
    edited = ("prompts.image_column=rejected",) if model in EDITING else ()
    return ("prompts=file", f"prompts.path={PAIRS}", *edited)


def allowed() -> list[tuple[str, str, tuple[str, ...]]]:
    """Model, algorithm and the words beside them, of each pair that tests train."""
    return [
        (models[0], name, data(models[0], name))
        for family, models in FAMILIES.items()
        for name in algorithms()
        if name not in REFUSED.get(family, ())
    ]
