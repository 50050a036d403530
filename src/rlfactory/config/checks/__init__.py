"""Rules about combinations: choices that are each valid and together are not.

A rule is a function `require_...(config, traits)`. It takes the configuration and the traits of its
components (the constants of their classes, read from source) and yields a Problem for each fault.
"""

from collections.abc import Mapping

from rlfactory.config.checks import (
    chats,
    composites,
    data,
    engine,
    eval_sets,
    few_steps,
    model_files,
    networks,
    optimisation,
    pictures,
    precision_and_parallelism,
    prompt_files,
    regularizer,
    sampling,
    tree,
    user_functions,
)
from rlfactory.config.checks.base import Rule

_READS: Mapping[Rule, str] = {
    optimisation.require_matching_algorithm: "algo model._target_ advantage",
    sampling.require_matching_dynamics: "dynamics._target_ model._target_",
    sampling.require_matching_schedule: "schedule._target_ model._target_",
    sampling.require_steps_within_timesteps: "schedule evaluation.steps",
    sampling.require_step_likelihood: "algo._target_ dynamics._target_",
    regularizer.require_matching_divergence: "regularizer._target_ regularizer.terms algo._target_",
    regularizer.require_matching_process: "regularizer._target_ regularizer.terms model._target_",
    regularizer.require_surrogate: "regularizer algo._target_",
    regularizer.require_valid_terms: "regularizer._target_ regularizer.terms",
    regularizer.require_nonzero_gradient: "regularizer",
    optimisation.require_groups_of_two: "algo advantage group_size",
    optimisation.require_whole_pairs: "algo._target_ model._target_ group_size shares",
    optimisation.require_value_for_dense_scores: "algo model.value_path",
    optimisation.require_ordered_clips_of_tokens: "algo",
    optimisation.require_mean_of_whole_ratio: "algo",
    optimisation.require_resampled_groups: "resample group_size algo._target_",
    optimisation.require_nonzero_weights: "advantage.weights",
    optimisation.require_buffer_fits: "advantage",
    optimisation.require_warmup_before_end: "ema old",
    sampling.require_branches_fill_groups: (
        "branches branch_at group_size window schedule algo._target_"
    ),
    tree.require_tree_algorithm: "branch_at algo",
    tree.require_whole_tree: "branch_at branches tree schedule.steps algo._target_",
    tree.require_depth_comparison: "branch_at advantage algo._target_",
    tree.require_skipped_within_steps: "schedule.steps algo",
    sampling.require_derived_dynamics: "algo._target_ dynamics._target_",
    few_steps.require_sound_on_few_steps: "distilled_to algo._target_ model._target_ model.path",
    optimisation.require_single_update: "algo._target_ updates_per_iteration epochs",
    optimisation.require_equal_updates: (
        "prompts_per_iteration group_size updates_per_iteration shares"
    ),
    sampling.require_window_within_steps: "algo._target_ schedule.steps window",
    optimisation.require_times_within_steps: "algo._target_ schedule.steps times",
    sampling.require_pure_noise_at_the_start: ("schedule algo._target_ dynamics._target_ window"),
    sampling.require_noise_in_last_step: "algo._target_ schedule.steps window dynamics regularizer",
    data.require_reward: "reward._target_ reward.parts eval_rewards algo._target_ stop",
    data.require_comparable_samples: "reward group_size",
    composites.require_distinct_rewards: "reward eval_rewards",
    composites.require_known_parts: "reward",
    composites.require_weighted_parts: "reward",
    composites.require_ordered_clips: "reward",
    composites.require_gdpo_advantage: "reward advantage algo._target_",
    data.require_matching_media: "reward._target_ reward.parts eval_rewards model._target_",
    data.require_metadata: "reward._target_ reward.parts eval_rewards prompts model._target_",
    data.require_answers: "reward reward.parts eval_rewards prompts",
    data.require_completions: "algo prompts model._target_",
    data.require_rows_once: "algo._target_ group_size regularizer._target_",
    data.require_prompt_feature: "reward._target_ reward.parts eval_rewards prompts",
    prompt_files.require_readable_prompts: "prompts",
    prompt_files.require_dataset_columns: "prompts",
    chats.require_template: "prompts model",
    chats.require_conversations: "prompts model",
    chats.require_answers_of_conversations: "prompts model algo",
    chats.require_room: "model.path dynamics",
    pictures.require_matching_pictures: "prompts model._target_",
    pictures.require_readable_pictures: "prompts model._target_ model.size",
    model_files.require_model_folders: "model.path model.value_path model._target_",
    model_files.require_followed_scheduler: "model.path model._target_",
    model_files.require_divisible_sizes: "model.path model.size evaluation.size model._target_",
    model_files.require_possible_frames: "model.path model.frames",
    model_files.require_one_transformer: "model.path model._target_",
    model_files.require_plain_weights: "model.path",
    model_files.require_matching_embedded_guidance: "model.path model.embedded_guidance",
    networks.require_known_lora_targets: "model",
    networks.require_reward_files: "reward reward.parts eval_rewards",
    model_files.require_run_folder: "run_dir",
    model_files.require_cache_folder: "prompt_cache",
    model_files.require_compatible_run: (
        "begin_from model._target_ model.finetune model.lora_rank model.lora_alpha"
    ),
    optimisation.require_valid_optimizer: "optimizer",
    precision_and_parallelism.require_equal_replay_precision: "precision algo",
    precision_and_parallelism.require_sufficient_weight_precision: "precision model._target_",
    precision_and_parallelism.require_known_attention: "memory.attention model._target_",
    precision_and_parallelism.require_deterministic_attention: "memory.attention hardware",
    precision_and_parallelism.require_guidance_above_one: "model",
    precision_and_parallelism.require_groups_divide: "hardware prompts_per_iteration",
    precision_and_parallelism.require_shardable: "hardware model optimizer",
    precision_and_parallelism.require_shards_divide: "hardware",
    user_functions.require_callable_functions: "reward reward.parts eval_rewards prompts",
    eval_sets.require_named_sets: "eval_sets",
    eval_sets.require_fitting_sets: (
        "eval_sets reward._target_ reward.parts eval_rewards prompts model._target_"
    ),
    composites.require_distinct_loggers: "logger",
    composites.require_installed_loggers: "logger",
    engine.require_installed_engine: "engine",
    engine.require_engine_of_texts: "engine model._target_ hardware",
    engine.require_engine_draws_whole_distribution: "engine dynamics",
}

RULES: Mapping[Rule, tuple[str, ...]] = {rule: tuple(keys.split()) for rule, keys in _READS.items()}
"""Each rule, in the order of report, with the keys that it reads: a rule runs only where none of
these has a problem of its own."""
