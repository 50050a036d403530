# %% [markdown]
# # What to change for a GPU
#
# Plans runs of full-size models on a machine without a GPU: what fits into memory, and which settings change that.

# %%
import rlfactory as rl

# %% [markdown]
# ## The same words
#
# A GPU is used where there is one: `hardware=auto`. `model=sd35` or `model=flux` bring settings for full-size models: LoRA, bfloat16, their sampling steps and batch sizes. `hardware.gpu` names the GPU to plan for; nothing is loaded.

# %%
plan = rl.plan("model=sd35", "algo=grpo", "reward=pickscore", "hardware.gpu=h100")
print(plan.table())

# %% [markdown]
# The row to read is `peak memory`, an estimate by arithmetic on the configuration ([how](../estimate.md)). `rlfactory estimate` with the same words counts memory, FLOPs and seconds on the engine itself. Runs of this package on a GPU were not compared with them yet.
#
# ## Other GPUs, other algorithms


# %%
def row(*words, name):
    """One row of a plan's table."""
    lines = rl.plan(*words).table().splitlines()
    return next(line for line in lines if line.startswith(f"{name}  "))


shared = ["model=sd35", "reward=pickscore"]
for gpu in ("h100", "a100_80gb", "rtx4090"):
    print(gpu)
    print(row(*shared, "algo=grpo", f"hardware.gpu={gpu}", name="peak memory"))

# %%
for algo in ("grpo", "nft", "awm", "vgrpo"):
    print(algo)
    print(row(*shared, f"algo={algo}", "hardware.gpu=h100", name="passes"))

# %% [markdown]
# ## When it does not fit
#
# FLUX has 12 billion parameters. The plan says what is missing and what helps most.

# %%
print(row("model=flux", "hardware.gpu=rtx4090", name="peak memory"))
print(row("model=flux", "hardware.gpu=rtx4090", name="note 1"))

# %% [markdown]
# `memory=low` takes all savings together. Here it is not enough, since the frozen weights alone take 22.6 GiB. A GPU with 48 GB has room:

# %%
print(row("model=flux", "hardware.gpu=rtx4090", "memory=low", name="peak memory"))
print(row("model=flux", "hardware.gpu=l40s", "memory=low", name="peak memory"))

# %% [markdown]
# ## Several GPUs
#
# `hardware=ddp` copies the network to each GPU, `hardware=fsdp2` shards it. Batch sizes are those of all GPUs together, so that the experiment stays the same. Several processes are started by the command.

# %%
# !rlfactory check model=sd35 algo=grpo reward=pickscore hardware=ddp hardware.processes=8 hardware.gpu=h100

# %% [markdown]
# ## From the small model to the full one
#
# | on two cores | on a GPU |
# |---|---|
# | `model=tiny_sd3` | `model=sd35`, or `model.path=FOLDER` with your weights |
# | `model=tiny_flux` | `model=flux` |
# | `model=tiny_gpt2` | `model=gpt2`, `model=qwen3` |
# | `reward=shapes` | `reward=pickscore`, `reward=hps`, `reward=ocr` |
# | float32 | bfloat16, chosen by the full-size models' recipes |
#
# Published configurations are named: `experiment=peer/flow_grpo`.

# %%
# !rlfactory check experiment=peer/flow_grpo hardware.gpu=h100

# %% [markdown]
# [Full-size models](../full_size.md) · [their defaults](../reference/defaults.md) · [several GPUs](../scaling.md) · [memory](../memory.md)
