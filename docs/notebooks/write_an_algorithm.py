# %% [markdown]
# # Write an algorithm
#
# Derives Flow-DPPO (arXiv 2606.11025) from the GRPO that ships, in one cell, and trains with it.
#
# Flow-GRPO clips the ratio r of each sampling step, as PPO does. Flow-DPPO has no clip. It leaves a step out of the loss if the new policy has moved too far from the old one, and the update would move it further away. "Too far" is measured by the KL divergence D of the step. Both policies' steps are normal distributions with the same standard deviation, so D follows from their means. D is averaged over dimensions, as log r is:
#
#     D    = mean (mu - mu_old)^2 / (2 s^2)
#     loss = mean (0 where D >= kl_threshold and A log r > 0, else -A r)

# %%
import rlfactory as rl
from rlfactory.algo.base import Loss
from rlfactory.algo.grpo import GRPO
from rlfactory.algo.ops.step_replay import replay_step, replayed_log_ratio
from rlfactory.algo.ops.surrogate import ratio_metrics
from rlfactory.batch import Outputs

# %% [markdown]
# An algorithm is a loss and what it needs. `stores_step_mean` asks the sampler to store the mean of each step. A keyword-only parameter of the constructor is an option, and its annotation is its type.
#
# `replay_step` repeats stored steps with the current weights; `replayed_log_ratio` is log r.

# %%


class FlowDPPO(GRPO):
    """GRPO with a mask by the KL divergence of a step instead of a clip."""

    stores_step_mean = True

    def __init__(self, dynamics, advantage, *, kl_threshold: float = 1e-5):
        super().__init__(dynamics, advantage)
        self.kl_threshold = kl_threshold

    def loss(self, model, batch):
        prediction, step, log_prob = replay_step(model, batch, self.dynamics)
        log_ratio, metrics = replayed_log_ratio(log_prob, batch)
        shift = (step.mean.detach() - batch.require_replayed().mean) / step.std
        divergence = shift.pow(2).flatten(1).mean(1) / 2
        moves_away = batch.advantage * log_ratio.detach() > 0
        masked = (divergence >= self.kl_threshold) & moves_away
        ratio = log_ratio.exp()
        losses = (-batch.advantage * ratio).masked_fill(masked, 0.0)
        metrics |= ratio_metrics(ratio, None)
        metrics |= {"loss/policy": losses.detach(), "kl/step": divergence}
        metrics["ratio/clip_fraction"] = masked.float()
        return Loss(losses.mean(), Outputs(prediction, step), metrics)


# %% [markdown]
# Hand the class over as `algo`. It begins with the companions of `algo=grpo`: the stochastic sampler, the window of trained steps and the advantage within a group. Its own options are added with a `+`.


# %%
def warmth(images, prompts, metadata):
    """Mean of red minus mean of blue, in [-1, 1]."""
    means = images.float().mean(dim=(2, 3)) / 255
    return (means[:, 0] - means[:, 2]).tolist()


shared = {
    "reward": warmth,
    "iterations": 8,
    "prompts_per_iteration": 4,
    "group_size": 8,
    "optimizer": {"lr": 3e-4},
    "evaluation": {"prompts": 16},
}
run = rl.train("algo.kl_threshold=1e-5", algo=FlowDPPO, run_dir="flow_dppo", **shared)

# %%
print("before", run.before)
print("after", run.after)

# %% [markdown]
# The metrics that the loss returned are recorded with all others. `kl/step` is a mean over both updates of an iteration, and 0 in the first; `ratio/clip_fraction` is the share of steps that were left out:

# %%
columns = ["reward/warmth/mean", "kl/step", "ratio/clip_fraction"]
figure = {"subplots": True, "layout": (1, 3), "figsize": (12, 2.5), "legend": False}
_ = run.metrics[["iteration", *columns]].dropna().plot(x="iteration", title=columns, **figure)

# %% [markdown]
# GRPO under the same settings, for orientation; one seed of so few iterations ranks nothing.

# %%
# %%capture
grpo = rl.train(algo="grpo", run_dir="grpo", **shared)

# %%
print("GRPO", grpo.before, grpo.after)

# %% [markdown]
# Flow-DPPO also ships, as `algo=flow_dppo`. To keep an algorithm of your own, move the class to a module and give it a file in a configuration folder: [your own algorithm](../extend/algorithm.md). It is then a word of the command, `algo=NAME`.
