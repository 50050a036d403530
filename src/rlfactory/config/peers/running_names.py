"""Other libraries' names of what concerns a run: hardware, precision, output."""

from rlfactory.config.peers import values
from rlfactory.config.peers.name import (
    DDPO,
    FF,
    FLOW_GRPO,
    HF,
    TRL,
    Name,
)

HARDWARE = (
    Name(
        "bf16", HF, "precision=bf16", choices={"true": "precision=bf16", "false": "precision=fp32"}
    ),
    Name(
        "fp16", HF, "precision=fp16", choices={"true": "precision=fp16", "false": "precision=fp32"}
    ),
    *(
        Name(
            *(name, peers, "precision={value}"),
            choices={"no": "precision=fp32"}
            | {t: f"precision={p}" for t, p in values.PRECISIONS.items()},
        )
        for name, peers in (
            ("mixed_precision", ("accelerate", *FF, *DDPO)),
            ("dtype", ("transformers",)),
            ("torch_dtype", ("diffusers", "transformers")),
        )
    ),
    *(
        Name(name, peers, "precision.tf32={value}")
        for name, peers in (("tf32", HF), ("allow_tf32", DDPO))
    ),
    *(
        Name(name, peers, "memory.gradient_checkpointing={value}")
        for name, peers in (
            ("gradient_checkpointing", HF),
            ("enable_gradient_checkpointing", FF),
            ("activation_checkpointing", FLOW_GRPO),
        )
    ),
    Name("torch_compile", HF, "memory.compile={value}"),
    Name("device", ("diffusers",), "hardware.device={value}", "that of rewards: scoring.device"),
    Name("use_cpu", HF, "hardware=cpu"),
    *(
        Name(
            name,
            peers,
            "hardware=ddp hardware.processes={value}",
            "hardware=fsdp2 shards the network",
        )
        for name, peers in (("gpus", ("Lightning",)), ("num_processes", ("accelerate", *FF)))
    ),
    Name("deepspeed", HF, "hardware=fsdp2", "sharded over all GPUs"),
    Name("fsdp", HF, "hardware=fsdp2"),
)

RUNS = (
    *(
        Name(name, peers, "run_dir={value}")
        for name, peers in (("output_dir", HF), ("logdir", DDPO), ("save_dir", (*FF, *FLOW_GRPO)))
    ),
    Name("run_name", (*HF, *FF, *DDPO), "run_dir=outputs/{value}"),
    *(
        Name(
            name,
            peers,
            "checkpoint.every={value}",
            "in iterations; also by time: checkpoint.minutes",
        )
        for name, peers in (("save_steps", HF), ("save_freq", (*FF, *DDPO)))
    ),
    *(
        Name(name, peers, "evaluation.every={value}", "in iterations")
        for name, peers in (("eval_steps", HF), ("eval_freq", (*FF, *FLOW_GRPO)))
    ),
    *(
        Name(name, peers, "checkpoint.keep={value}")
        for name, peers in (("save_total_limit", HF), ("num_checkpoint_limit", DDPO))
    ),
    Name("logging_steps", HF, "", "metrics are written in each iteration"),
    *(
        Name(name, peers, "logger={value}", choices={"none": "logger=jsonl"})
        for name, peers in (("report_to", HF), ("log_with", TRL), ("logging_backend", FF))
    ),
    Name("wandb", ("others",), "logger=wandb", choices={"false": "logger=jsonl"}),
    *(
        Name(name, peers, "logger.project={value}", bases=("logger=wandb",))
        for name, peers in (("project", FF), ("wandb_project", ("HF Trainer", "DRLX")))
    ),
    *(
        Name(
            *(name, peers, "rlfactory resume RUN"),
            "or the same command again, with the same run_dir",
            resolve=values.resume,
        )
        for name, peers in (
            ("resume_from_checkpoint", HF),
            ("resume_from", DDPO),
            ("resume", ("others",)),
        )
    ),
)
