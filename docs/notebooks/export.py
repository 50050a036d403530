# %% [markdown]
# # Export to diffusers and PEFT
#
# Writes a run's LoRA adapters, and loads them with diffusers and with PEFT, without this package.

# %%
import torch
from diffusers.utils import make_image_grid

import rlfactory as rl

run = rl.train(
    "algo=vgrpo",
    "reward=incompressibility",
    "model.finetune=lora",
    iterations=8,
    prompts_per_iteration=4,
    group_size=8,
    optimizer={"lr": 3e-4},
    evaluation={"prompts": 16},
    run_dir="my_run",
)
print(run.before["incompressibility"], "->", run.after["incompressibility"])

# %% [markdown]
# ## Adapters
#
# `run.export` does what the command does, which also prints the code that loads the result:

# %%
# !rlfactory export my_run --to adapters

# %%
from pathlib import Path

for path in sorted(Path("adapters").iterdir()):
    size = f"{path.stat().st_size / 1e3:.0f} kB" if path.is_file() else ""
    print(f"{path.name:36} {size:>8}")

# %% [markdown]
# ## diffusers

# %%
from diffusers import StableDiffusion3Pipeline

from rlfactory.model.pipelines.local_models import zoo_path

base = str(zoo_path("tiny_sd3"))
prompts = ["a red circle", "a blue square", "a green star"]


def draw(pipe):
    pipe.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(0)
    options = {"num_inference_steps": 8, "guidance_scale": 1.0, "generator": generator}
    options |= {"height": 64, "width": 64, "max_sequence_length": 16}
    return pipe(prompts, **options).images


pipe = StableDiffusion3Pipeline.from_pretrained(base, dtype=torch.float32)
before = draw(pipe)
pipe.load_lora_weights("adapters")
after = draw(pipe)
make_image_grid([*before, *after], rows=2, cols=3, resize=128)  # before, after

# %% [markdown]
# ## PEFT
#
# The folder is a PEFT adapter too. Both libraries compute the same images:

# %%
from peft import PeftModel

other = StableDiffusion3Pipeline.from_pretrained(base, dtype=torch.float32)
other.transformer = PeftModel.from_pretrained(other.transformer, "adapters")
all(a.tobytes() == b.tobytes() for a, b in zip(draw(other), after))

# %% [markdown]
# ## Merged
#
# `merge=True` adds the adapters to the weights and writes a complete pipeline, which needs neither library's adapters. Merging rounds, so that pixels may differ by a little.

# %%
run.export("merged", merge=True)
merged = draw(StableDiffusion3Pipeline.from_pretrained("merged"))
make_image_grid(merged, rows=1, cols=3, resize=128)

# %% [markdown]
# ## The card
#
# `README.md` in the folder is a model card: base, reward, algorithm, scores with intervals, and the code that loads it.

# %%
print(Path("adapters/README.md").read_text()[:1200])

# %% [markdown]
# [Export](../export.md) describes language models, other weight sets (`weights="policy"`), and what is exact.
