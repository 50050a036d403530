"""The tables of docs/migrating: each library's options and ours.

The rows are those of the table of names, and of the presets of `experiment=peer/NAME`.
"""

from collections.abc import Mapping, Sequence

from names import table

from rlfactory.config.options import first_comment, options
from rlfactory.config.peers.names import Name, rows_of

PEERS: Mapping[str, tuple[str, ...]] = {
    "trl": ("TRL", "TRL DDPO", "HF Trainer"),
    "flow_factory": ("Flow-Factory",),
    "unirl": ("UniRL",),
    "flow_grpo": ("flow_grpo",),
    "ddpo_pytorch": ("ddpo-pytorch",),
    "drlx": ("DRLX",),
}
"""The libraries of each page, as the table of names has them."""
PRESETS: Mapping[str, tuple[str, ...]] = {
    "trl": ("peer/trl_ddpo", "trl_v2", "trl_tldr", "trl_legacy"),
    "flow_factory": (
        *("peer/flow_factory_grpo", "peer/flow_factory_grpo_flux", "peer/flow_factory_guard"),
        *("peer/flow_factory_grpo_flux2", "peer/flow_factory_grpo_qwen_image"),
        *("peer/flow_factory_grpo_z_image", "peer/flow_factory_grpo_wan"),
        *("peer/flow_factory_dppo_flux2_klein", "peer/flow_factory_dppo_flux2_klein_multi"),
        *("peer/flow_factory_nft", "peer/flow_factory_nft_qwen_image"),
        *("peer/flow_factory_nft_flux", "peer/flow_factory_awm", "peer/flow_factory_awm_flux"),
    ),
    "unirl": ("peer/unirl_grpo_flux2_klein", "peer/flow_dppo"),
    "flow_grpo": (
        "peer/flow_grpo",
        "peer/flow_grpo_fast",
        "peer/flow_grpo_flux",
        "peer/flow_grpo_qwen_image",
        "peer/flow_grpo_wan",
        "peer/guard",
    ),
    "ddpo_pytorch": ("peer/ddpo",),
    "drlx": ("peer/drlx",),
}
"""Experiments with the settings of each library."""
MORE: Mapping[str, tuple[Name, ...]] = {
    "flow_factory": (
        Name("latent_storage_dtype", (), "latent_storage"),
        Name("rewards", (), "reward.of reward.weights", "with reward=combine; one alone: reward"),
    ),
    "unirl": (
        Name("timestep_fraction", (), "window.low window.high", "shares of the steps"),
        Name("WindowScheduler", (), "window=progressive, window=random_contiguous"),
        Name("strategy", (), "dynamics", "FlowSDEStrategy, DanceSDEStrategy, CPSSDEStrategy"),
        Name("eta", (), "dynamics.noise_level dynamics.eta", "by the dynamics"),
        Name("shift", (), "schedule.shift"),
        Name("trajectory_precision", (), "latent_storage"),
        Name("adv_use_global_std", (), "advantage=global advantage=group"),
        Name("old_logp_source", (), "algo.old_log_probs"),
        Name("training_timestep_fraction", (), "times.fraction", "with times=discrete"),
        Name("ema_lora_cfg", (), "old.schedule old.ramp old.decay"),
        Name("loss_agg_mode", (), "algo.aggregation"),
        Name("drpo_epsilon", (), "algo.clip_range", "with algo=drpo"),
    ),
    "flow_grpo": (
        Name("pretrained.model", (), "model model.path"),
        Name("sde_window_range", (), "window.low window.high"),
        Name("same_latent", (), "branches", "as many as group_size"),
        Name("beta (of train)", (), "regularizer=kl_flow_grpo regularizer.coefficient.value"),
        Name("kl_reward", (), "", "the KL penalty is part of the loss"),
        Name("ema", (), "evaluation.weights"),
    ),
    "ddpo_pytorch": (
        Name("pretrained.model", (), "model model.path"),
        Name("per_prompt_stat_tracking.buffer_size", (), "advantage.buffer_size"),
        Name("per_prompt_stat_tracking.min_count", (), "advantage.min_count"),
        Name("cfg", (), "model.guidance", "in sampling and in learning"),
    ),
    "drlx": (
        Name("optimizer.kwargs.lr", (), "optimizer.lr"),
        Name("optimizer.kwargs.weight_decay", (), "optimizer.weight_decay"),
        Name("optimizer.kwargs.betas", (), "optimizer.betas"),
        Name("checkpoint_interval", (), "checkpoint.every", "in iterations"),
        Name("suppress_log_keywords", (), "", "messages of libraries are not shown"),
    ),
}
"""Options that are no names by themselves: of groups, or with a value that selects an option."""


def flags(page: str) -> str:
    """The options of a library, and the experiments with its settings."""
    rows: Sequence[Name] = [*rows_of(*PEERS[page]), *MORE.get(page, ())]
    known = options("experiment")
    lines = ["| `experiment=` | |", "| --- | --- |"]
    lines += [f"| `{name}` | {first_comment(known[name])} |" for name in PRESETS[page]]
    presets = "\n".join(lines)
    return f"{table(rows, peers=False)}\n\n## Experiments with its settings\n\n{presets}"
