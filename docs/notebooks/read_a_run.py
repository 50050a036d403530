# %% [markdown]
# # Read a run
#
# Where a run keeps its metrics, scores and samples, and how to read them: is it learning, what does it cost, and what is lost?

# %%
# %%capture
import json

import rlfactory as rl

run = rl.train(
    "algo=vgrpo",
    "reward=incompressibility",
    "eval_rewards.of=[shapes]",
    iterations=8,
    prompts_per_iteration=4,
    group_size=8,
    evaluation={"prompts": 32, "every": 4, "grid": 12},
    run_dir="my_run",
)

# %% [markdown]
# ## The folder
#
# `%%capture` hid what training shows, since all of it is in the run's folder. `load_run` reads a folder, also one that a command has written.

# %%
run = rl.load_run("my_run")
for path in sorted(run.path.iterdir()):
    print(path.name + ("/" if path.is_dir() else ""))

# %% [markdown]
# ## Metrics
#
# `run.metrics` is a DataFrame: a row for each iteration, and one for each evaluation. [Metrics](../metrics.md) explains each column.

# %%
metrics = run.metrics
score = "incompressibility/mean"
metrics[["iteration", f"reward/{score}", f"eval/{score}", "eval/shapes/mean"]]

# %%
columns = [f"reward/{score}", "diversity/pairwise", "ratio/clip_fraction", "grad/norm"]
figure = {"subplots": True, "layout": (1, 4), "figsize": (12, 2.2), "legend": False}
_ = metrics[["iteration", *columns]].dropna().plot(x="iteration", title=columns, **figure)

# %% [markdown]
# ## Evaluations
#
# The training reward is measured on few prompts, new ones each time, and is noisy. An evaluation always uses the same prompts and noise, and its scores are kept for each prompt.

# %%
scores = json.loads((run.path / "evaluations" / "000008.json").read_text())
print(scores.keys())

# %% [markdown]
# `shapes` was not trained on: it measures whether the image shows what the prompt says. Whatever the reward does not ask for can get lost.

# %%
for name in ("incompressibility", "shapes"):
    print(f"{name:18} {run.before[name]:.3f} -> {run.after[name]:.3f}")

# %% [markdown]
# ## Samples
#
# The same prompts before, during and after training:

# %%
from IPython.display import Image

Image(run.path / "samples" / "strip.png", width=500)

# %% [markdown]
# New ones, from the newest checkpoint:

# %%
from diffusers.utils import make_image_grid

images = run.samples(["a red circle left of a blue square"], count=6)
make_image_grid(images, rows=1, cols=6, resize=96)

# %% [markdown]
# ## How it was made
#
# `config.yaml` holds every value of the run, and `explain` says which file and line set one.

# %%
run.config["optimizer"]

# %%
# !rlfactory explain optimizer.lr algo=vgrpo

# %% [markdown]
# ## More data for the evaluation
#
# With 32 prompts an interval is wide. A finished run can be evaluated again on more:

# %%
# !rlfactory evaluate my_run evaluation.prompts=96

# %% [markdown]
# For tables, intervals and pages of several runs, see [compare algorithms](compare_algorithms.ipynb).
