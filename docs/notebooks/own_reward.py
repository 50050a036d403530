# %% [markdown]
# # Your own reward
#
# A reward is a Python function from a batch of images to a list of scores. This one asks for warm colors, and a second score watches what that costs.

# %%
import torch
from IPython.display import Image

import rlfactory as rl

# %% [markdown]
# The function gets the images as uint8 `[B, 3, H, W]`, their prompts, and a dictionary of facts for each prompt. It returns one number for each image; higher is better.

# %%


def warmth(images, prompts, metadata):
    """Mean of red minus mean of blue, in [-1, 1]."""
    means = images.float().mean(dim=(2, 3)) / 255
    return (means[:, 0] - means[:, 2]).tolist()


# %% [markdown]
# Try a reward by hand before you train on it: a red, a blue and a white image.

# %%
colors = torch.tensor([[255, 0, 0], [0, 0, 255], [255, 255, 255]], dtype=torch.uint8)
warmth(colors[:, :, None, None].expand(-1, -1, 64, 64), ["", "", ""], [{}, {}, {}])

# %% [markdown]
# Now train. `eval_rewards` names further scores of the evaluation: `shapes` measures whether an image shows what its prompt says. It is watched and not trained on.

# %%
run = rl.train(
    "algo=vgrpo",
    "eval_rewards.of=[shapes]",
    reward=warmth,
    iterations=8,
    prompts_per_iteration=4,
    group_size=8,
    optimizer={"lr": 3e-4},
    evaluation={"prompts": 32, "grid": 12},
    run_dir="warm",
)

# %%
for name in ("warmth", "shapes"):
    print(f"{name:8} {run.before[name]:.3f} -> {run.after[name]:.3f}")

# %% [markdown]
# The images became warmer, and agree less with their prompts: the reward says nothing about the prompt, so nothing keeps the model to it. The same prompts and noise, before and after:

# %%
Image(run.path / "samples" / "strip.png", width=420)

# %% [markdown]
# Three remedies, each one argument of `train`:
#
# - a second reward: `reward={"warmth": warmth, "shapes": ("shapes", 0.5)}` is a weighted sum, [combine](../reward/combine.md);
# - a penalty on the distance from the original model: `regularizer="kl_v"`, [regularizers](../regularizer/README.md);
# - fewer iterations: `evaluation={"every": 2}` evaluates in between, and the best checkpoint is kept.
#
# ## A reward that reads the prompt
#
# Prompts may bring facts of their own: every key of a row beside `prompt` is in `metadata`.

# %%
rows = [
    {"prompt": "a red circle", "channel": 0},
    {"prompt": "a green square", "channel": 1},
    {"prompt": "a blue star", "channel": 2},
]


def wanted_channel(images, prompts, metadata):
    """Mean of the wanted channel minus the mean of all channels."""
    means = images.float().mean(dim=(2, 3)) / 255
    return [(mean[row["channel"]] - mean.mean()).item() for mean, row in zip(means, metadata)]


print(rl.plan("algo=vgrpo", reward=wanted_channel, prompts=rows).table())

# %% [markdown]
# For options, several scores or a network of its own, subclass `Reward`: [your own reward](../extend/reward.md). To use a function with the command, put it in a file: [`reward=image_function`](../reward/function.md).
