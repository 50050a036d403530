"""Losses and gradients of TRL's GRPO, RLOO and GMPO trainers on random batches, for our tests.

    python3.11 -m venv trl-environment
    trl-environment/bin/pip install torch trl==1.16.0 requests
    trl-environment/bin/python scripts/conformance/record_grpo.py tests/data/trl/grpo.safetensors

The trainers' own `_compute_loss` runs on an object that has what it reads: a real configuration and
accelerator, and log-probabilities and entropies by TRL's functions from the batch's logits. The
gradient is that of the logits.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import torch
import trl
from accelerate import Accelerator
from batches import LONGEST, ROWS, log_prob_of, response_batch, write
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl.experimental.gmpo import GMPOConfig, GMPOTrainer
from trl.trainer.utils import entropy_from_logits, selective_log_softmax

KL = {"beta": 0.04, "use_bias_correction_kl": False}
CORRECTED = {"beta": 0.04, "use_bias_correction_kl": True}
GSPO = {"importance_sampling_level": "sequence", "epsilon": 0.1, "epsilon_high": 0.15}
CASES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo"},
    "grpo, first update": {"loss_type": "grpo", "first": True},
    "grpo, kl": {"loss_type": "grpo", **KL},
    "grpo, corrected kl": {"loss_type": "grpo", **CORRECTED},
    "grpo, masked": {"loss_type": "grpo", "mask_truncated_completions": True},
    "bnpo": {"loss_type": "bnpo"},
    "bnpo, masked": {"loss_type": "bnpo", "mask_truncated_completions": True, **KL},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "dr_grpo, corrected kl": {"loss_type": "dr_grpo", **CORRECTED},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "dapo, masked": {"loss_type": "dapo", "mask_truncated_completions": True},
    "dapo, delta": {"loss_type": "dapo", "epsilon_high": 0.28, "delta": 1.5},
    "dapo, entropy": {"loss_type": "dapo", "entropy_coef": 0.01},
    "gspo": {"loss_type": "grpo", **GSPO},
    "gspo, corrected kl": {"loss_type": "grpo", **GSPO, **CORRECTED},
    "gspo, tokens": {"loss_type": "dapo", **GSPO},
    "luspo": {"loss_type": "luspo", **GSPO},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "cispo, kl": {"loss_type": "cispo", "epsilon_high": 1.5, **KL},
    "sapo": {"loss_type": "sapo"},
    "rloo": {"rloo": True},
    "vespo": {"loss_type": "vespo"},
    "vespo, soft": {"loss_type": "vespo", "vespo_k_pos": 1.0, "vespo_lambda_neg": 0.5},
    "gmpo": {"gmpo": True},
    "gmpo, narrow": {"gmpo": True, "epsilon": 0.1, "epsilon_high": 0.2},
}
TRAINERS = {"rloo": (RLOOConfig, RLOOTrainer), "gmpo": (GMPOConfig, GMPOTrainer)}
BATCHES = 10


def trainer_of(options: dict[str, Any]) -> tuple[Any, Any]:
    """The configuration and the trainer of a case."""
    return next((TRAINERS[key] for key in TRAINERS if key in options), (GRPOConfig, GRPOTrainer))


def trainer(options: dict[str, Any]) -> Any:
    """What `_compute_loss` reads of a trainer."""
    common = {"output_dir": "unused", "per_device_train_batch_size": ROWS, "num_generations": 2}
    common |= {"use_cpu": True, "bf16": False, "gradient_accumulation_steps": 1}
    common |= {"max_completion_length": LONGEST, "report_to": "none"}
    chosen = {k: v for k, v in options.items() if k not in ("first", *TRAINERS)}
    config = trainer_of(options)[0](**common, **chosen)
    made = SimpleNamespace(
        args=config,
        accelerator=Accelerator(cpu=True),  # after the configuration, which resets its state
        model=SimpleNamespace(training=True),
        _metrics={"train": defaultdict(list)},
        epsilon_low=config.epsilon,
        epsilon_high=config.epsilon if config.epsilon_high is None else config.epsilon_high,
        beta=config.beta,
        aux_loss_enabled=False,
        current_gradient_accumulation_steps=1,
        max_completion_length=LONGEST,
        use_vllm=False,
    )
    made._get_per_token_logps_and_entropies = MethodType(log_probs, made)
    made.get_gamma_weights = GRPOTrainer.get_gamma_weights
    if options.get("rloo"):
        return made
    made.loss_type, made.top_entropy_quantile = config.loss_type, config.top_entropy_quantile
    made.off_policy_mask_threshold = config.off_policy_mask_threshold
    made.importance_sampling_level = config.importance_sampling_level
    made.vllm_importance_sampling_correction = config.vllm_importance_sampling_correction
    weight = getattr(config, "entropy_coef", 0.0)  # since 1.13
    made.entropy_coef, made.use_adaptive_entropy = weight, False
    made._entropy_bonus_enabled = weight != 0
    return made


def log_probs(
    self: Any, model: Any, input_ids: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, Tensor, None]:
    """Log-probabilities and entropies of the responses from the batch's logits."""
    response = input_ids[:, -model.logits.shape[1] :]
    log_prob = selective_log_softmax(model.logits, response)
    return log_prob, entropy_from_logits(model.logits), None


def inputs(batch: dict[str, Tensor], options: dict[str, Any]) -> dict[str, Tensor]:
    """What TRL's sampling hands to the loss."""
    response, mask = batch["response"], batch["mask"].int()
    if options.get("mask_truncated_completions"):
        mask = mask * batch["ended"][:, None].int()
    old = log_prob_of(batch["old_logits"], response)
    made = {
        "prompt_ids": torch.ones(ROWS, 1, dtype=torch.int64),
        "prompt_mask": torch.ones(ROWS, 1, dtype=torch.int64),
        "completion_ids": response,
        "completion_mask": mask,
        "advantages": batch["advantage"],
        "ref_per_token_logps": log_prob_of(batch["reference_logits"], response),
        "num_items_in_batch": mask.sum(),
        "old_logps": (old * mask).sum(1),
    }
    return made if options.get("first") else {**made, "old_per_token_logps": old}


def record(options: dict[str, Any], batch: dict[str, Tensor], made: Any) -> dict[str, Tensor]:
    """The loss and its gradient by the logits."""
    logits = batch["logits"].clone().requires_grad_()
    model = SimpleNamespace(logits=logits)
    loss = trainer_of(options)[1]._compute_loss(made, model, inputs(batch, options))
    (gradient,) = torch.autograd.grad(loss, logits)
    return {"loss": loss, "gradient": gradient}


def main() -> None:
    """Record all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    a = parser.parse_args()
    recorded: dict[str, Tensor] = {}
    for number, (name, options) in enumerate(CASES.items()):
        made = trainer(options)
        generator = torch.Generator().manual_seed(number)
        for i in range(BATCHES):
            batch = response_batch(generator)
            batch |= record(options, batch, made)
            recorded |= {f"{name}/{i}/{key}": value for key, value in batch.items()}
    write(a.file, trl.__version__, CASES, recorded)


if __name__ == "__main__":
    main()
