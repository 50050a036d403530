"""The tiny pipelines, for the tests of the matrix."""

from tiny_pipelines import (
    flux2_folder,
    flux_folders,
    flux_kontext_folder,
    qwen_image_folder,
    sana_folder,
    schnell_folder,
    sdxl_folder,
    small,
    wan_folder,
    z_image_folder,
)

__all__ = [
    "flux2_folder",
    "flux_folders",
    "flux_kontext_folder",
    "qwen_image_folder",
    "sana_folder",
    "schnell_folder",
    "sdxl_folder",
    "small",
    "wan_folder",
    "z_image_folder",
]
