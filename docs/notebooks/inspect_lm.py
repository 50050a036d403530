# %% [markdown]
# # Look inside a tuned language model
#
# Which tokens did training promote, from which layer on, and which part of the network wrote them? The logit lens and direct logit attribution compare a tuned model with its original.

# %%
import json

import pandas as pd
from IPython.display import Image

import rlfactory as rl

# %% [markdown]
# A GPT-2 that writes film reviews, tuned towards positive ones as in [PPO on a GPT-2](ppo_gpt2.ipynb):

# %%
run = rl.train(
    "model=tiny_gpt2",
    "reward=sentiment",
    iterations=10,
    prompts_per_iteration=64,
    evaluation={"prompts": 64},
    run_dir="reviews",
)
print(run.before["sentiment"], "->", run.after["sentiment"])

# %% [markdown]
# `inspect` draws texts with the original network, and both networks process the same texts: whatever differs is due to the weights.

# %%
# !rlfactory inspect reviews --prompts 16

# %% [markdown]
# ## Which tokens
#
# Mean probability over all positions of the responses, before and after.

# %%
found = json.loads((run.path / "inspect" / "inspect.json").read_text())
pd.DataFrame(found["rose"] + found["fell"])[["token", "base", "tuned"]].round(4)

# %% [markdown]
# ## From which layer on
#
# The logit lens decodes the state after each layer as if the network ended there. A cell is the factor by which a token's probability rose. The last column is the whole network; early layers mean little, since they were never trained to be decoded.

# %%
Image(run.path / "inspect" / "lens.png", width=800)

# %% [markdown]
# ## Which part
#
# A logit is the sum of what embeddings, attention and MLPs write. The bars are means over the tokens that rose and over those that fell, for both networks; the table below is the tuned network minus the original, token by token. Only direct contributions count: a head whose output another one reads gets no credit for it.

# %%
Image(run.path / "inspect" / "attribution.png", width=800)

# %% [markdown]
# ## What makes a text good
#
# A direction from the original network's bad samples to its good ones. First ask whether it means anything: how often does a good sample lie above a bad one on prompts that did not make the direction? 0.5 is chance.

# %%
direction = found["direction"]
print(f"separation {direction['separation']:.2f}")
shift, low, high = (direction[key] for key in ("shift", "low", "high"))
print(f"tuning moved the network by {shift:+.3f} ({low:+.3f} to {high:+.3f})")

# %% [markdown]
# The unit is the gap between bad and good samples. An interval that contains 0 says that no movement was seen.
#
# [Inspect](../inspect.md) explains each figure and its limits.
