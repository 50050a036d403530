"""Choices that each make sense and together do not: one rule a function, in order of report.

A rule takes the configuration and the traits of its components (literals of their classes, read
from source) and yields the problems that it sees.
"""

from collections.abc import Mapping

from rlfactory.crossings.base import Rule
from rlfactory.crossings.beginning import begins_with_a_run
from rlfactory.crossings.combined import (
    advantage_sums_parts,
    clips_have_order,
    parts_are_named,
    parts_are_rewards,
    parts_count,
)
from rlfactory.crossings.computing import (
    attention_is_known,
    divided_networks_train_whole,
    frozen_weights_suffice,
    guidance_guides,
    processes_share_groups,
    replay_computes_alike,
)
from rlfactory.crossings.data import (
    prompt_files_are_readable,
    prompts_bring_metadata,
    reward_judges_what_is_made,
    rewards_have_company,
)
from rlfactory.crossings.deepspeed import deepspeed_is_there, pasted_agrees, zero_divides
from rlfactory.crossings.folders import (
    guidance_fits_network,
    model_folders_hold_models,
    prompt_cache_is_a_folder,
    sizes_divide,
)
from rlfactory.crossings.learning import (
    algorithm_fits_model,
    averages_have_time,
    buffers_fill,
    groups_have_members,
    one_update_on_policy,
    optimizer_moves,
    samples_stay_whole,
    times_within_steps,
    updates_have_samples,
    weights_weigh,
)
from rlfactory.crossings.penalty import (
    behaviour_has_surrogate,
    divergence_fits_process,
    divergence_teaches,
    regularizer_fits_algorithm,
    terms_add_up,
)
from rlfactory.crossings.sampling import (
    branches_grow,
    derived_for_dynamics,
    dynamics_fit_model,
    last_step_has_noise,
    schedule_fits_model,
    stepwise_needs_likelihood,
    window_within_steps,
)
from rlfactory.crossings.trackers import loggers_are_there, parts_are_loggers

# each with the keys that it reads: it is asked only where these are sound by themselves
RULES: Mapping[Rule, tuple[str, ...]] = {
    algorithm_fits_model: ("algo._target_", "model._target_"),
    dynamics_fit_model: ("dynamics._target_", "model._target_"),
    schedule_fits_model: ("schedule._target_", "model._target_"),
    stepwise_needs_likelihood: ("algo._target_", "dynamics._target_"),
    regularizer_fits_algorithm: ("regularizer._target_", "regularizer.terms", "algo._target_"),
    divergence_fits_process: ("regularizer._target_", "regularizer.terms", "model._target_"),
    behaviour_has_surrogate: ("regularizer", "algo._target_"),
    terms_add_up: ("regularizer._target_", "regularizer.terms"),
    divergence_teaches: ("regularizer",),
    groups_have_members: ("algo", "advantage", "group_size"),
    weights_weigh: ("advantage.weights",),
    buffers_fill: ("advantage",),
    averages_have_time: ("ema", "old"),
    branches_grow: ("branches", "branch_at", "group_size", "window", "schedule", "algo._target_"),
    derived_for_dynamics: ("algo._target_", "dynamics._target_"),
    one_update_on_policy: ("algo._target_", "updates_per_iteration", "epochs"),
    samples_stay_whole: ("algo", "micro_batch", "times"),
    updates_have_samples: ("prompts_per_iteration", "group_size", "updates_per_iteration"),
    window_within_steps: ("algo._target_", "schedule.steps", "window"),
    times_within_steps: ("algo._target_", "schedule.steps", "times"),
    last_step_has_noise: ("algo._target_", "schedule.steps", "window", "dynamics", "regularizer"),
    rewards_have_company: ("reward", "group_size"),
    parts_are_rewards: ("reward", "eval_rewards"),
    parts_are_named: ("reward",),
    parts_count: ("reward",),
    clips_have_order: ("reward",),
    advantage_sums_parts: ("reward", "advantage", "algo._target_"),
    reward_judges_what_is_made: (
        *("reward._target_", "reward.parts", "eval_rewards", "model._target_"),
    ),
    prompts_bring_metadata: (
        *("reward._target_", "reward.parts", "eval_rewards", "prompts._target_"),
    ),
    prompt_files_are_readable: ("prompts",),
    model_folders_hold_models: ("model.path", "model.value_path", "model._target_"),
    sizes_divide: ("model.path", "model.size", "evaluation.size", "model._target_"),
    guidance_fits_network: ("model.path", "model.embedded_guidance"),
    prompt_cache_is_a_folder: ("prompt_cache",),
    begins_with_a_run: ("begin_from", "model._target_"),
    optimizer_moves: ("optimizer",),
    replay_computes_alike: ("precision", "algo._target_"),
    frozen_weights_suffice: ("precision", "model._target_"),
    attention_is_known: ("memory.attention", "model._target_"),
    guidance_guides: ("model",),
    processes_share_groups: ("hardware", "prompts_per_iteration"),
    divided_networks_train_whole: ("hardware", "model", "precision"),
    deepspeed_is_there: ("hardware._target_",),
    zero_divides: ("hardware", "model", "optimizer._target_", "precision"),
    pasted_agrees: (
        *("hardware", "micro_batch", "prompts_per_iteration", "group_size", "max_grad_norm"),
        *("updates_per_iteration", "precision", "algo", "times", "window", "schedule.steps"),
    ),
    parts_are_loggers: ("logger",),
    loggers_are_there: ("logger",),
}
