# %% [markdown]
# # A first run
#
# Fine-tunes a small Stable Diffusion 3 with a reward, on two CPU cores and offline, and shows what changed.
#
# Install the package from a checkout: `pip install -c constraints.txt .` The model of this notebook ships with it.

# %%
import rlfactory as rl

# %% [markdown]
# An experiment is a list of choices. `reward=incompressibility` scores an image by the size of its JPEG file in kB; `algo=vgrpo` is the algorithm. All other choices follow from these, or have a default.
#
# A plan checks the choices and says what they amount to. It takes about a second and loads no model.

# %%
experiment = {
    "reward": "incompressibility",
    "algo": "vgrpo",
    "iterations": 8,
    "prompts_per_iteration": 4,
    "group_size": 8,  # images of each prompt
    "evaluation": {"prompts": 16},
    "run_dir": "first_run",
}
print(rl.plan(**experiment).table())

# %% [markdown]
# `train` takes the same arguments. Each iteration draws 4 x 8 images, scores them, and updates the weights twice.

# %%
run = rl.train(**experiment)

# %% [markdown]
# Below its cell a run shows its scores, curves and last samples. The scores are means of an evaluation before and one after training, on prompts and noise that are the same both times:

# %%
print("before", run.before)
print("after", run.after)

# %% [markdown]
# More detail makes a larger file. Draw images of your own prompts with the tuned weights:

# %%
from diffusers.utils import make_image_grid

prompts = ["a red circle", "a blue square", "a green star", "two triangles"]
make_image_grid(run.samples(prompts, count=2), rows=2, cols=4, resize=128)

# %% [markdown]
# The same run on the command line is
#
# ```bash
# rlfactory reward=incompressibility algo=vgrpo iterations=8 prompts_per_iteration=4 group_size=8 evaluation.prompts=16 run_dir=first_run
# ```
#
# and the commands read what Python has trained:

# %%
# !rlfactory sample first_run --prompt "a yellow cross" --count 2

# %% [markdown]
# Eight iterations are a demonstration. A default run, `rl.train()`, has 40 iterations of 96 images and takes about four minutes on two cores.
#
# Next: [your own reward](own_reward.ipynb), or [read a run](read_a_run.ipynb).
