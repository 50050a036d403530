# %% [markdown]
# # Your own pipeline from disk
#
# Loads a diffusers pipeline, tunes it with LoRA, and hands back a diffusers pipeline.

# %%
import torch
from diffusers import DiffusionPipeline
from diffusers.utils import make_image_grid

import rlfactory as rl
from rlfactory.model.pipelines.local_models import zoo_path

# %% [markdown]
# Any folder of a `StableDiffusionPipeline`, `StableDiffusion3Pipeline` or `FluxPipeline` will do. Here it is the small Stable Diffusion 1 that ships, copied to a folder of its own.

# %%
shipped = DiffusionPipeline.from_pretrained(zoo_path("tiny_sd"), dtype=torch.float32)
shipped.save_pretrained("my_pipeline")

pipe = DiffusionPipeline.from_pretrained("my_pipeline", dtype=torch.float32)
pipe.set_progress_bar_config(disable=True)
type(pipe).__name__

# %% [markdown]
# The pipeline is handed over as `model`. The class of the pipeline chooses the adapter, the sampler and the image size; `model.finetune=lora` trains adapters and leaves the weights alone.

# %%


def brightness(images, prompts, metadata):
    """Mean of all pixels, in [0, 1]."""
    return (images.float().mean(dim=(1, 2, 3)) / 255).tolist()


colors = ("red", "green", "blue")
prompts = [f"a {color} {shape}" for color in colors for shape in ("circle", "square")]
run = rl.train(
    "algo=vgrpo",
    "model.finetune=lora",
    model=pipe,
    reward=brightness,
    prompts=prompts,
    iterations=8,
    prompts_per_iteration=4,
    group_size=8,
    optimizer={"lr": 5e-4},
    evaluation={"prompts": 12},
    run_dir="my_run",
)

# %%
print("before", run.before)
print("after", run.after)

# %% [markdown]
# `run.pipeline()` is a new diffusers pipeline with the adapters merged. The one that was handed over is unchanged.

# %%
tuned = run.pipeline()
tuned.set_progress_bar_config(disable=True)


def draw(pipeline):
    generator = torch.Generator().manual_seed(0)
    options = {"num_inference_steps": 10, "guidance_scale": 1.0, "generator": generator}
    return pipeline(prompts, height=64, width=64, **options).images


make_image_grid([*draw(pipe), *draw(tuned)], rows=2, cols=len(prompts), resize=96)

# %% [markdown]
# First row: before; second row: after, from the same noise.
#
# The command takes the folder itself:

# %%
# !rlfactory check model=tiny_sd model.path=my_pipeline model.finetune=lora reward=compressibility

# %% [markdown]
# A pipeline of full size is used in the same way: `model=sd35 model.path=FOLDER` or a hub id, on a GPU. [What to change for a GPU](gpu.ipynb) has the numbers.
