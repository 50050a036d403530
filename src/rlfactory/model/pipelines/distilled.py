"""Models that were distilled to few sampling steps, by their hub ids and files. Torch-free."""

from pathlib import Path

from rlfactory.model.pipelines.local_models import PIPELINE_INDEX, folder_of, pipeline_of, read_json
from rlfactory.model.pipelines.scheduler_config import scheduler_of

STEPS = {
    "black-forest-labs/FLUX.1-schnell": 4,
    "black-forest-labs/FLUX.2-klein-4B": 4,
    "black-forest-labs/FLUX.2-klein-9B": 4,
    "Tongyi-MAI/Z-Image-Turbo": 8,
    "stabilityai/stable-diffusion-3.5-large-turbo": 4,
    "stabilityai/sdxl-turbo": 4,
    "stabilityai/sd-turbo": 4,
}
"""The sampling steps of published models. Files of Z-Image-Turbo do not tell it from Z-Image."""
SHORTEST = 4
"""Of the models that their files tell."""


def distilled_steps(path: str) -> int | None:
    """The steps that a model was distilled to; None where neither its id nor its files say so."""
    if path in STEPS:
        return STEPS[path]
    folder = folder_of(path)
    return SHORTEST if folder is not None and _is_distilled(folder) else None


def _is_distilled(folder: Path) -> bool:
    """FLUX.2's index says so; FLUX.1 schnell has neither guidance as an input nor a shift."""
    if read_json(folder / PIPELINE_INDEX).get("is_distilled"):
        return True
    if pipeline_of(folder) != "FluxPipeline":
        return False
    network, scheduler = read_json(folder / "transformer" / "config.json"), scheduler_of(folder)
    has_shift = scheduler.get("use_dynamic_shifting") or scheduler.get("shift", 1.0) != 1.0
    return bool(network and scheduler) and not network.get("guidance_embeds") and not has_shift
