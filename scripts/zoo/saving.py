"""Saving a trained pipeline in the form in which it ships."""

import json
from pathlib import Path

import torch
from diffusers import DiffusionPipeline


def save_half(pipe: DiffusionPipeline, out: Path) -> None:
    """Save in half precision, to be loaded in float32 where no dtype is asked for.

    diffusers then loads networks in float32, but transformers loads text encoders in the dtype that
    their config names, and a pipeline of two dtypes fails when it is called.
    """
    pipe.to(torch.float16).save_pretrained(out, safe_serialization=True)
    pipe.to(torch.float32)
    for path in out.glob("text_encoder*/config.json"):
        content = json.loads(path.read_text("utf-8")) | {"dtype": "float32"}
        path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
