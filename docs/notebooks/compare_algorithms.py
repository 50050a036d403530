# %% [markdown]
# # Compare algorithms
#
# Trains with two algorithms on equal terms, two seeds each, and reads the comparison with its uncertainty.

# %%
import rlfactory as rl

# %% [markdown]
# Equal terms: the same model, reward, prompts, number of images and updates, and the same evaluation. Only the algorithm and the seed differ. (`%%capture` hides what the four runs show.)

# %%
# %%capture
shared = {
    "reward": "incompressibility",
    "iterations": 6,
    "prompts_per_iteration": 4,
    "group_size": 8,
    "evaluation": {"prompts": 32},
}
runs = [
    rl.train(algo=algo, seed=seed, run_dir=f"runs/{algo}-{seed}", **shared)
    for algo in ("vgrpo", "nft")
    for seed in (0, 1)
]

# %%
name = "incompressibility"
for run in runs:
    print(f"{run.path.name:8} {run.before[name]:.3f} -> {run.after[name]:.3f}")

# %% [markdown]
# ## Two runs side by side
#
# `compare` lists what differs. The interval is over the evaluation's images, which are paired: both runs drew them from the same prompts and noise.

# %%
# !rlfactory compare runs/vgrpo-0 runs/nft-0

# %% [markdown]
# ## Seeds
#
# That interval holds for these two runs. Another seed makes another run: `report` puts runs that differ only in the seed into one row, and its intervals are over seeds.

# %%
# !rlfactory report runs --format terminal --out report

# %% [markdown]
# With two seeds Student's factor is 12.7, so an interval is wide, whatever the means are. Three or more seeds are what a claim needs.
#
# ## Curves

# %%
import matplotlib.pyplot as plt

plt.figure(figsize=(6, 3))
for run in runs:
    rows = run.metrics.dropna(subset=[f"reward/{name}/mean"])
    style = "-" if run.config["seed"] == 0 else "--"
    color = "tab:blue" if "vgrpo" in run.path.name else "tab:orange"
    label = run.path.name
    plt.plot(rows["iteration"], rows[f"reward/{name}/mean"], style, color=color, label=label)
plt.xlabel("iteration")
plt.ylabel(f"{name} in training")
_ = plt.legend()

# %% [markdown]
# ## Cost
#
# Iterations of different algorithms cost differently. `nfe/total` counts network evaluations.

# %%
for run in runs:
    print(run.path.name, int(run.metrics["nfe/total"].max()), "network evaluations")

# %% [markdown]
# All of this is about six iterations at default learning rates; longer runs and tuned ones may differ. [Results](../results.md) compares all of them over equal budgets, and [sweeps](sweeps.ipynb) runs such tables.
