# %% [markdown]
# # GRPO with a verifier
#
# A program checks each answer of a language model and gives it 1 or 0; GRPO learns from the differences within a group of answers to one question.
#
# The question here is a route: a directed graph has 21 nodes, `a` to `u`, and from a given node the model should reach `a` in as few steps as possible. The small GPT-2 that ships has seen random walks on this graph, one letter a token. So it knows the edges, and not the aim.

# %%
from transformers import AutoModelForCausalLM, AutoTokenizer

import rlfactory as rl
from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.prompts.randomwalks import NODES, adjacency, best_lengths

folder = zoo_path("randomwalks")
model = AutoModelForCausalLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)

# %% [markdown]
# The data set has a row for each question. Its columns, beside `prompt`, are what the verifier needs: here the number of steps of a shortest route.

# %%
questions = [
    {"prompt": node, "shortest": int(nodes) - 1}
    for node, nodes in zip(NODES, best_lengths())
    if node != "a"
]
questions[:3]

# %% [markdown]
# The verifier is exact: each step must be an edge, the last node must be `a`, and no shorter route may exist.

# %%
edges = {NODES[i] + NODES[j] for i, j in zip(*adjacency().nonzero())}


def shortest_route(prompts, completions, shortest):
    """1 for a shortest route, else 0. Columns of the data set are arguments."""
    scores = []
    for start, rest, steps in zip(prompts, completions, shortest):
        route = start + rest
        is_route = all(route[i : i + 2] in edges for i in range(len(rest))) and route[-1] == "a"
        scores.append(float(is_route and len(rest) == steps))
    return scores


shortest_route(["b", "b"], ["pa", "ua"], [2, 2])

# %% [markdown]
# `algo=grpo_token` draws 16 answers to each question. The mean score of a group is its baseline, so there is no value network. A group whose answers are all right or all wrong teaches nothing.

# %%
run = rl.train(
    "algo=grpo_token",
    model=model,
    tokenizer=tokenizer,
    reward=shortest_route,
    prompts=questions,
    iterations=20,
    prompts_per_iteration=20,
    group_size=16,
    dynamics={"length": 9},  # tokens of an answer, at most
    optimizer={"lr": 3e-4},
    evaluation={"prompts": 20},
    run_dir="routes",
)

# %%
print("before", run.before)
print("after", run.after)

# %% [markdown]
# There are only 20 questions, so the evaluation asks those that were trained on: this is a fit, and says nothing about other graphs. The share of shortest routes in training:

# %%
_ = run.metrics.plot(
    x="iteration", y="reward/shortest_route/mean", figsize=(6, 3), ylabel="share", legend=False
)

# %% [markdown]
# Answers after training, with their verdicts:

# %%
starts = [row["prompt"] for row in questions]
answers = run.samples(starts)
verdicts = shortest_route(starts, answers, [row["shortest"] for row in questions])
for start, answer, verdict in zip(starts[:8], answers, verdicts):
    print(f"{start} -> {answer:9} {'shortest' if verdict else 'no'}")

# %% [markdown]
# For a larger model only the objects change: a chat model and its tokenizer, a `datasets.Dataset` with a column `answer`, and a function that compares. Whether a completion has a form is checked by rewards that ship: [`regex`](../reward/regex.md) and [`json`](../reward/json.md).
