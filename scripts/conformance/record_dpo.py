"""Losses and gradients of TRL's DPO trainer on random batches, for our tests.

    python3.11 -m venv trl-environment
    trl-environment/bin/pip install torch trl==1.16.0 requests
    trl-environment/bin/python scripts/conformance/record_dpo.py tests/data/trl/dpo.safetensors

The trainer's own `_compute_loss` runs on an object that has what it reads; only what runs networks
is replaced by tables of logits. The first half of a batch's rows are the chosen responses, the
second half the rejected ones. The gradient is that of the logits.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import trl
from accelerate import Accelerator
from batches import ROWS, response_batch, write
from torch import Tensor
from trl import DPOConfig, DPOTrainer
from trl.trainer.utils import selective_log_softmax

CASES: dict[str, dict[str, Any]] = {
    "sigmoid": {"loss_type": "sigmoid"},
    "sigmoid, beta": {"loss_type": "sigmoid", "beta": 0.5},
    "ipo": {"loss_type": "ipo"},
    "hinge": {"loss_type": "hinge", "beta": 0.4},
    "robust": {"loss_type": "robust", "label_smoothing": 0.2},
}
BATCHES = 10
METRICS = {
    "chosen": "rewards/chosen",
    "rejected": "rewards/rejected",
    "margin": "rewards/margins",
    "accuracy": "rewards/accuracies",
    "log_prob_chosen": "logps/chosen",
    "log_prob_rejected": "logps/rejected",
}
"""TRL's metrics by our names."""


class Table:
    """A model whose logits are a table, as the trainer calls it."""

    training = True

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def __call__(self, *, labels: Tensor, **_: Any) -> SimpleNamespace:
        """The outputs of TRL's language model heads."""
        targets = labels[:, 1:]
        log_prob = selective_log_softmax(self.logits, targets.clamp(min=0))
        nothing = torch.zeros(targets.shape)
        return SimpleNamespace(
            log_probs=log_prob.masked_fill(targets == -100, 0.0),
            entropy=nothing,
            mean_logits=nothing,
            is_top1=nothing.bool(),
        )


def trainer(options: dict[str, Any], reference: Table) -> Any:
    """What `_compute_loss` reads of a trainer."""
    config = DPOConfig(output_dir="unused", use_cpu=True, bf16=False, report_to="none", **options)
    return SimpleNamespace(
        args=config,
        accelerator=Accelerator(cpu=True),  # after the configuration, which resets its state
        model=SimpleNamespace(training=True, is_gradient_checkpointing=False),
        ref_model=reference,
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
        aux_loss_enabled=False,
        precompute_ref_logps=False,
        loss_types=config.loss_type,
        loss_weights=[1.0],
        ld_alpha=config.ld_alpha,
        beta=config.beta,
        label_smoothing=config.label_smoothing,
        f_divergence_type=config.f_divergence_type,
        f_alpha_divergence_coef=config.f_alpha_divergence_coef,
        use_weighting=config.use_weighting,
    )


def inputs(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """What TRL's collator hands to the loss: prompts of one token and their responses."""
    prompt = torch.ones(ROWS, 1, dtype=torch.int64)
    mask = batch["mask"].int()
    return {
        "input_ids": torch.cat([prompt, batch["response"]], 1),
        "attention_mask": torch.cat([prompt.int(), mask], 1),
        "completion_mask": torch.cat([0 * prompt.int(), mask], 1),
    }


def record(options: dict[str, Any], batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The loss, its gradient by the logits and the metrics."""
    made = trainer(options, Table(batch["reference_logits"]))
    logits = batch["logits"].clone().requires_grad_()
    loss = DPOTrainer._compute_loss(made, Table(logits), inputs(batch), False)
    (gradient,) = torch.autograd.grad(loss, logits)
    logged = made._metrics["train"]
    metrics = {ours: torch.tensor(logged[theirs][0]) for ours, theirs in METRICS.items()}
    return {"loss": loss, "gradient": gradient, **metrics}


def main() -> None:
    """Record all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    a = parser.parse_args()
    recorded: dict[str, Tensor] = {}
    for number, (name, options) in enumerate(CASES.items()):
        generator = torch.Generator().manual_seed(number)
        for i in range(BATCHES):
            batch = response_batch(generator)
            del batch["old_logits"], batch["advantage"]
            batch |= record(options, batch)
            recorded |= {f"{name}/{i}/{key}": value for key, value in batch.items()}
    write(a.file, trl.__version__, CASES, recorded)


if __name__ == "__main__":
    main()
