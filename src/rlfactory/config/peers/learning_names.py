"""Other libraries' names of what concerns learning: optimization, batches, losses."""

from rlfactory.config.peers import values
from rlfactory.config.peers.name import (
    DDPO,
    FF,
    FLOW_GRPO,
    HF,
    STEPWISE,
    TEXTS,
    TRL,
    Name,
)

OPTIMISATION = (
    Name(
        "learning_rate",
        (*HF, *FF, *DDPO),
        "optimizer.lr={value}",
        "learning_rate.* are the keys of its schedule",
    ),
    Name(
        *("lr_scheduler_type", HF, "learning_rate.final_scale={value}"),
        "a constant or linear schedule only",
        choices={
            "constant": "learning_rate.final_scale=1.0",
            "linear": "learning_rate.final_scale=0.0",
            "cosine": "learning_rate.final_scale=0.0",
            "constant_with_warmup": "learning_rate.final_scale=1.0 learning_rate.warmup=10",
        },
    ),
    Name("warmup_steps", HF, "learning_rate.warmup={value}", "in iterations, not optimizer steps"),
    Name(
        *("warmup_ratio", HF, "learning_rate.warmup"),
        "a number of iterations, not a share of them",
        resolve=values.warmup_of_ratio,
    ),
    Name("adam_weight_decay", (*FF, *DDPO), "optimizer.weight_decay={value}"),
    Name("adam_epsilon", (*HF, *FF, *DDPO), "optimizer.eps={value}"),
    Name("adam_betas", FF, "optimizer.betas={value}"),
    Name(
        "adam_beta1",
        (*HF, *DDPO),
        "optimizer.betas",
        "one key for both: [beta1,beta2]",
        resolve=values.first_beta,
    ),
    Name(
        "adam_beta2",
        (*HF, *DDPO),
        "optimizer.betas",
        "one key for both: [beta1,beta2]",
        resolve=values.second_beta,
    ),
    Name("grad_clip", ("DRLX",), "max_grad_norm={value}"),
    Name(
        *("optim", HF, "optimizer={value}"),
        choices=dict.fromkeys(("adamw", "adamw_torch", "adamw_torch_fused"), "optimizer=adamw")
        | dict.fromkeys(
            ("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"), "optimizer=adamw_8bit"
        ),
    ),
    Name(
        *("use_8bit_adam", DDPO, "optimizer=adamw_8bit"),
        choices={"true": "optimizer=adamw_8bit", "false": "optimizer=adamw"},
    ),
    Name(
        *("max_steps", HF, "iterations"),
        "optimizer steps there; an iteration has epochs x updates_per_iteration of them",
        resolve=values.iterations_of_steps,
    ),
    Name(
        *("num_train_epochs", HF, "iterations"),
        "passes over the prompts there; here iterations x prompts_per_iteration prompts are drawn",
        resolve=values.present_iterations,
    ),
    Name(
        *("num_epochs", ("TRL DDPO", *FF, *DDPO), "iterations={value}"),
        "rounds of sampling and learning; epochs here are passes over the samples of one",
    ),
    Name(
        *("total_episodes", TRL, "iterations"),
        "samples there; an iteration has prompts_per_iteration x group_size",
        resolve=values.iterations_of_samples,
    ),
)

BATCHES = (
    Name(
        *("num_generations", TRL, "group_size={value}"),
        "samples per prompt",
    ),
    Name("num_return_sequences", ("transformers",), "group_size={value}", "samples per prompt"),
    Name("num_image_per_prompt", FLOW_GRPO, "group_size={value}", "samples per prompt"),
    Name("num_images_per_prompt", ("diffusers",), "group_size={value}", "samples per prompt"),
    Name(
        *("per_device_train_batch_size", HF, "micro_batch={value}"),
        "samples in one forward pass; it does not change what an update learns from",
    ),
    Name(
        *("per_device_batch_size", FF, "micro_batch={value}"),
        "items in one forward pass; sample_batch is the number of images sampled together",
    ),
    Name(
        *("batch_size", (*TRL, *DDPO, "DRLX"), "micro_batch={value}"),
        "items in one forward pass; an iteration has prompts_per_iteration x group_size samples",
    ),
    Name("train_batch_size", (*FLOW_GRPO, "TRL DDPO"), "micro_batch={value}", "items in one pass"),
    Name("mini_batch_size", TRL, "micro_batch={value}", "items in one forward pass"),
    Name(
        *("gradient_accumulation_steps", (*HF, *FF, *DDPO), ""),
        "follows from micro_batch: an update accumulates the gradients of all of its samples;"
        " updates_per_iteration divides an iteration's samples into updates",
    ),
    Name("gradient_step_per_epoch", FF, "updates_per_iteration={value}"),
    Name("num_mini_batches", TRL, "updates_per_iteration={value}"),
    Name("num_iterations", TRL, "epochs={value}", "passes over the samples of an iteration"),
    Name("num_ppo_epochs", TRL, "epochs={value}", "passes over the samples of an iteration"),
    Name("ppo_epochs", (*TRL, "trlx", "verl"), "epochs={value}", "passes over an iteration"),
    Name("num_inner_epochs", DDPO, "epochs={value}", "passes over the samples of an iteration"),
    Name("unique_sample_num_per_epoch", FF, "prompts_per_iteration={value}"),
    Name(
        *("num_batches_per_epoch", DDPO, ""),
        "set prompts_per_iteration: samples of an iteration over group_size",
    ),
    Name(
        *("dataloader_num_workers", (*HF, *FF), ""),
        "prompts are read in the process itself",
    ),
)

LOSSES = (
    Name(
        *("trainer_type", FF, "algo={value}"),
        choices={"grpo-guard": "algo=grpo_guard"},
    ),
    Name("epsilon", TRL, "algo.clip_range={value}", bases=("algo=grpo",)),
    Name("clip_range", (*FF, *DDPO), "algo.clip_range={value}", bases=STEPWISE),
    Name("cliprange", (*TRL, "trlx"), "algo.clip_range={value}", bases=TEXTS),
    Name("cliprange_value", (*TRL, "trlx"), "algo.value_clip={value}", bases=TEXTS),
    Name("vf_coef", (*TRL, "trlx"), "algo.value_weight={value}", bases=TEXTS),
    Name("gamma", (*TRL, "trlx"), "algo.gamma={value}", bases=TEXTS),
    Name("lam", (*TRL, "trlx"), "algo.lam={value}", bases=TEXTS),
    Name("whiten_rewards", TRL, "algo.whiten_token_rewards={value}", bases=TEXTS),
    Name(
        *("missing_eos_penalty", TRL, "algo.missing_end=penalty algo.missing_end_value={value}"),
        bases=TEXTS,
    ),
    *(
        Name(
            *(name, peers, "regularizer.coefficient.value={value}"),
            f"the KL coefficient{more}",
            ("regularizer=kl_v",),
        )
        for name, peers, more in (
            ("beta", (*TRL, *FLOW_GRPO), "; algo.beta is that of DiffusionNFT"),
            ("kl_beta", FF, ""),
            ("kl_coef", TRL, ""),
            ("init_kl_coef", (*TRL, "trlx"), ""),
            ("kl", ("TRL",), ""),
        )
    ),
    Name("nft_beta", FF, "algo.beta={value}", bases=("algo=nft",)),
    Name("adv_clip_max", DDPO, "advantage.clip={value}"),
    Name("adv_clip_range", FF, "advantage.clip={value}"),
    Name(
        *("global_std", (*FF, *FLOW_GRPO), "advantage.std"),
        choices={"true": "advantage.std=global", "false": "advantage.std=group"},
    ),
    Name(
        *("advantage_aggregation", FF, "advantage.aggregate={value}"),
        choices={"gdpo": "advantage=gdpo"},
    ),
    Name(
        *("per_prompt_stat_tracking", DDPO, "advantage=tracker"),
        choices={"true": "algo=ddpo advantage=tracker", "false": "algo=ddpo advantage=batch"},
    ),
    Name("ema_decay", (*FF, "diffusers"), "ema.decay={value}"),
    Name("ema_update_interval", FF, "ema.interval={value}"),
)
