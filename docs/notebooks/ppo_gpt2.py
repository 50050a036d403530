# %% [markdown]
# # PPO on a GPT-2
#
# Tunes a GPT-2 that writes film reviews to write positive ones: PPO with a value head, a KL penalty, and a sentiment classifier as reward.

# %%
import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import rlfactory as rl
from rlfactory.model.pipelines.local_models import zoo_path

# %% [markdown]
# The model has 4 M parameters and ships; a folder or hub id of any causal language model works too.

# %%
folder = zoo_path("tiny_gpt2")
model = AutoModelForCausalLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
f"{model.num_parameters():,} parameters"

# %% [markdown]
# Prompts are the first words of film reviews. The reward is a classifier's probability that the whole text is positive; both ship.

# %%
run = rl.train(
    "algo=ppo",
    "prompts=movies",
    "reward=sentiment",
    model=model,
    tokenizer=tokenizer,
    iterations=10,
    prompts_per_iteration=64,
    evaluation={"prompts": 64},
    run_dir="reviews",
)

# %%
print("before", run.before)
print("after", run.after)

# %% [markdown]
# Three metrics say most about a run of PPO: the reward, the KL divergence from the original model in nats per token, and the share of ratios that were clipped.

# %%
metrics = run.metrics
columns = ["reward/sentiment/mean", "kl/reference", "ratio/clip_fraction"]
figure = {"subplots": True, "layout": (1, 3), "figsize": (12, 2.5), "legend": False}
_ = metrics[["iteration", *columns]].dropna().plot(x="iteration", title=columns, **figure)

# %% [markdown]
# The tuned model is a pair of transformers objects. The same prompts and random numbers, before and after:

# %%
tuned, _ = run.pipeline()


def write(network, prompt):
    torch.manual_seed(0)
    end = tokenizer.eos_token
    tokens = tokenizer(end + prompt, return_tensors="pt")
    options = {"max_new_tokens": 30, "do_sample": True, "pad_token_id": tokenizer.eos_token_id}
    written = network.generate(**tokens, **options)
    return tokenizer.decode(written[0]).replace(end, "")


networks = {"before": model, "after": tuned}
starts = ["This movie is", "I watched it", "The acting", "The plot of this film"]
pd.set_option("display.max_colwidth", None)
pd.DataFrame({name: [write(net, s) for s in starts] for name, net in networks.items()})

# %% [markdown]
# Ten iterations of 64 texts are a demonstration. The default, `rlfactory model=tiny_gpt2`, has 40 iterations of 128 and takes four to six minutes on one core.
#
# - Another algorithm: `algo=rloo` or `algo=grpo_token`, see [GRPO with a verifier](grpo_verifier.ipynb).
# - A penalty that is adapted to a target: `regularizer=kl_token_adaptive`.
# - What changed inside the network: [look inside a tuned language model](inspect_lm.ipynb).
