# %% [markdown]
# # Sweeps
#
# Writes a table of runs as a file, runs it with one command, repeats the command to resume it, and reads the table.
#
# The task takes seconds: a GPT-2 of 0.2 M parameters learns shortest routes on a graph, see [GRPO with a verifier](grpo_verifier.ipynb).

# %% [markdown]
# ## A few runs
#
# `-m` runs every combination of the values that are separated by commas.

# %%
# !rlfactory -m experiment=trlx_randomwalks iterations=2 evaluation.prompts=20 seed=0,1

# %% [markdown]
# ## A table
#
# A sweep file has rows, axes and seeds. Each run is an ordinary command.

# %%
from pathlib import Path

table = """
about: {title: Learning rates of PPO on routes}
columns:
  optimality: {label: optimality, full: eval/optimality, better: higher, digits: 2}
sizes:
  full: [experiment=trlx_randomwalks, iterations=10, evaluation.prompts=20]
seeds: [0, 1]
rows:
  - name: slow
    overrides: [optimizer.lr=3e-5]
  - name: fast
    overrides: [optimizer.lr=3e-4]
"""
_ = Path("rates.yaml").write_text(table)

# %% [markdown]
# All runs are checked before the first one begins. `--plan` only checks:

# %%
# !rlfactory sweep ./rates.yaml --plan

# %% [markdown]
# `jobs=2` runs two at once.

# %%
# !rlfactory sweep ./rates.yaml jobs=2

# %% [markdown]
# The same command again has nothing to do. After an interruption it would resume the runs that are unfinished.

# %%
# !rlfactory sweep ./rates.yaml jobs=2

# %% [markdown]
# ## The report
#
# `report` writes the table with intervals over seeds as Markdown, HTML, CSV and LaTeX, and the curves.

# %%
# !rlfactory report outputs/sweeps/rates-full --out report

# %%
from IPython.display import Image

Image("report/curves.png", width=700)

# %% [markdown]
# ## From Python
#
# The runs of a sweep are ordinary run folders.

# %%
import pandas as pd

import rlfactory as rl

folders = sorted(path.parent for path in Path("outputs/sweeps/rates-full").glob("*/config.yaml"))
rows = [(folder.name, rl.load_run(folder).after["optimality"]) for folder in folders]
pd.DataFrame(rows, columns=["run", "optimality"])

# %% [markdown]
# [Sweeps](../sweeps.md) describes the file, searches with Optuna, several stages, and clusters. `rlfactory sweep` lists published tables that ship.
