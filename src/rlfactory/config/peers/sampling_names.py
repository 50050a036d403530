"""Other libraries' names of what concerns samples: sampling, models, prompts, rewards."""

from rlfactory.config.peers import values
from rlfactory.config.peers.name import (
    DDPO,
    FF,
    FLOW_GRPO,
    HF,
    IMAGES,
    NOT_HERE,
    PEFT,
    STEPWISE,
    TEXTS,
    TRL,
    Name,
)

SAMPLING = (
    Name("num_inference_steps", (*IMAGES, "DRLX"), "schedule.steps={value}"),
    Name("num_steps", DDPO, "schedule.steps={value}"),
    Name(
        "steps", ("diffusers",), "schedule.steps={value}", "sampling steps; training has iterations"
    ),
    Name("eval_num_steps", FLOW_GRPO, "evaluation.steps={value}"),
    Name(
        "guidance_scale",
        (*IMAGES, *DDPO),
        "model.guidance={value}",
        "1 means no guidance",
        ("model=tiny_sd",),
    ),
    Name("cfg_scale", ("diffusers",), "model.guidance={value}", "1 means no guidance"),
    Name(
        *("size", ("diffusers",), "model.size={value}", "pixels; in evaluations evaluation.size"),
        bases=("model=sd35",),
    ),
    Name("resolution", (*FF, *FLOW_GRPO), "model.size={value}", "pixels", ("model=sd35",)),
    *(
        Name(edge, ("diffusers",), "model.size={value}", "or [HEIGHT,WIDTH]", ("model=sd35",))
        for edge in ("height", "width")
    ),
    Name("num_frames", ("diffusers",), "model.frames={value}", bases=("model=wan",)),
    Name("noise_level", (*FF, *FLOW_GRPO), "dynamics.noise_level={value}", bases=STEPWISE),
    Name("eta", ("diffusers", *DDPO), "dynamics.eta={value}", bases=("model=tiny_sd",)),
    Name(
        *("dynamics_type", FF, "dynamics={value}"),
        choices={
            "flow-sde": "algo=grpo dynamics=flow_sde",
            "dance-sde": "algo=grpo dynamics=dance_sde",
            "cps": "algo=grpo dynamics=cps",
            "ode": "dynamics=ode",
        },
    ),
    Name(
        *("sde_type", FLOW_GRPO, "dynamics={value}"),
        choices={
            "sde": "algo=grpo dynamics=flow_sde",
            "cps": "algo=grpo dynamics=cps",
        },
    ),
    Name("sampler", ("diffusers",), "dynamics={value}", resolve=values.dynamics),
    Name("scheduler", ("diffusers",), "schedule={value}", "the sampler is dynamics"),
    Name("num_sde_steps", FF, "window.size={value}", bases=("algo=grpo window=random_subset",)),
    Name(
        *("sde_window_size", FLOW_GRPO, "window.size={value}"),
        bases=("algo=grpo window=random_contiguous",),
    ),
    Name("timestep_fraction", DDPO, "algo.step_fraction={value}", bases=STEPWISE),
    Name("num_train_timesteps", FF, "times.count={value}"),
    Name(
        *("max_completion_length", TRL, "dynamics.length={value}", "tokens", TEXTS),
    ),
    Name("max_new_tokens", ("transformers",), "dynamics.length={value}", "tokens", TEXTS),
    Name("response_length", TRL, "dynamics.length={value}", "tokens", TEXTS),
    Name("max_tokens", ("vLLM",), "dynamics.length={value}", "tokens", TEXTS),
    Name(
        *("max_prompt_length", TRL, "model.max_prompt_length={value} model.long_prompts=cut"),
        *("tokens", TEXTS),
    ),
    Name("temperature", (*TRL, "transformers"), "dynamics.temperature={value}", bases=TEXTS),
    Name("top_k", (*TRL, "transformers"), "dynamics.top_k={value}", bases=TEXTS),
    Name("top_p", (*TRL, "transformers"), "dynamics.top_p={value}", bases=TEXTS),
    Name("use_vllm", TRL, "", "choose engine=vllm or engine=vllm_server"),
)

MODELS = (
    *(
        Name(
            *(name, peers, "model=OPTION model.path={value}"),
            "OPTION is the family, such as sd35",
            resolve=values.model,
        )
        for name, peers in (
            ("model_name_or_path", (*HF, *FF)),
            ("pretrained_model_name_or_path", ("diffusers", "transformers")),
            ("model_path", ("DRLX", "trlx")),
            ("model_name", TRL),
        )
    ),
    Name("finetune_type", FF, "model.finetune={value}"),
    *(
        Name(
            *(name, peers, "model.finetune=lora"),
            choices={"true": "model.finetune=lora", "false": "model.finetune=full"},
        )
        for name, peers in (("use_lora", (*DDPO, "TRL DDPO")), ("use_peft", TRL))
    ),
    *(
        Name(name, PEFT, "model.finetune=lora model.lora_rank={value}")
        for name in ("lora_r", "rank", "r")
    ),
    Name("lora_rank", FF, "model.finetune=lora model.lora_rank={value}"),
    Name("lora_alpha", (*PEFT, *FF), "model.finetune=lora model.lora_alpha={value}"),
    Name("lora_target_modules", TRL, "model.finetune=lora model.lora_targets={value}"),
    Name("target_modules", (*PEFT, *FF), "model.finetune=lora model.lora_targets={value}"),
    Name("lora_dropout", PEFT, "", NOT_HERE),
)

DATA = (
    *(
        Name(
            *(name, peers, "prompts=file prompts.path={value}"),
            "a hub id or folder: prompts=datasets prompts.path=...",
            resolve=values.prompts,
        )
        for name, peers in (
            ("dataset", ("others",)),
            ("dataset_name", TRL),
            ("dataset_dir", FF),
            ("data", ("verl",)),
            ("train_file", ("verl",)),
            ("prompt_file", ("others",)),
        )
    ),
    Name("prompt_fn", DDPO, "prompts={value}", resolve=values.prompt_function),
    *(
        Name(
            *(name, peers, "reward={value}"),
            "a function of your own: reward=image_function reward.function=FILE.py:NAME",
            resolve=values.reward,
        )
        for name, peers in (
            ("reward_fn", DDPO),
            ("reward_funcs", TRL),
            ("reward_model", FF),
            ("reward_model_path", TRL),
        )
    ),
)
