"""Losses and gradients of TRL 1.12's PPO trainer, the last one, and of its GSPO-token.

    python3.11 -m venv trl-1.12
    trl-1.12/bin/pip install torch trl==1.12.0 requests
    trl-1.12/bin/python scripts/conformance/record_ppo.py tests/data/trl/ppo.safetensors

`PPOTrainer.train` itself runs, for one update in one minibatch: scores, whitening, GAE and loss are
its own. Its functions that run networks are replaced by some that look the batch's numbers up; a
prompt is the number of its row.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import record_grpo
import torch
import trl
from batches import END, PAD, ROWS, WIDTH, response_batch, write
from torch import Tensor
from torch.nn.functional import pad
from trl.experimental.gspo_token.grpo_trainer import GRPOTrainer
from trl.experimental.ppo import ppo_trainer

ROW = 2
"""The prompt of row 0; those before are PAD and END."""
CASES: dict[str, dict[str, Any]] = {
    "ppo": {},
    "ppo, k3": {"kl_estimator": "k3", "kl_coef": 0.2},
    "ppo, whitened rewards": {"whiten_rewards": True},
    "ppo, missing end": {"missing_eos_penalty": 1.0, "temperature": 0.7},
    "ppo, discounted": {"gamma": 0.9, "lam": 0.8, "vf_coef": 1.0},
    "ppo, narrow clips": {"cliprange": 0.05, "cliprange_value": 0.05},
    "gspo_token": {"loss_type": "grpo", "epsilon": 0.1, "epsilon_high": 0.15},
    "gspo_token, tokens": {"loss_type": "bnpo", "epsilon": 0.1, "epsilon_high": 0.15},
}
DEFAULTS = {
    **{"kl_estimator": "k1", "kl_coef": 0.05, "whiten_rewards": False, "cliprange": 0.2},
    **{"missing_eos_penalty": None, "temperature": 1.0, "gamma": 1.0, "lam": 0.95},
    **{"vf_coef": 0.1, "cliprange_value": 0.2},
}
"""Those of PPOConfig; its temperature is 0.7."""
BATCHES = 10


def ppo_batch(generator: torch.Generator) -> dict[str, Tensor]:
    """A batch with scores, and values now and at sampling of every state, that after an end too."""
    batch = response_batch(generator)
    old = 0.5 * torch.randn(ROWS, WIDTH, generator=generator)
    batch |= {"old_value": old, "value": old + 0.3 * torch.randn(old.shape, generator=generator)}
    return {**batch, "score": torch.randn(ROWS, generator=generator)}


class Recorder:
    """Stands for the networks, the accelerator and the optimizer of a trainer."""

    num_processes = 1

    def __init__(self, batch: dict[str, Tensor]) -> None:
        self.batch = batch
        self.logits = batch["logits"].clone().requires_grad_()
        self.value = batch["value"].clone().requires_grad_()
        self.found: dict[str, Tensor] = {}
        self.policy, self.value_model, self.reference = "policy", "value", "reference"

    def rows(self, ids: Tensor) -> Tensor:
        return ids[:, 0] - ROW

    def generate(self, model: Any, queries: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
        rows = self.rows(queries)
        responses = torch.cat([queries, self.batch["response"][rows]], 1)
        # TRL divides the logits of later passes by it, and takes those of sampling as divided
        return responses, self.batch["old_logits"][rows] / self.temperature

    def forward(self, model: Any, ids: Tensor, _: int) -> Any:
        rows = self.rows(ids)
        if model is self.reference:
            return SimpleNamespace(logits=pad(self.batch["reference_logits"][rows], (0, 0, 0, 1)))
        logits = pad(self.logits[rows], (0, 0, 0, 1))
        return SimpleNamespace(logits=logits), pad(self.value[rows], (0, 1))[..., None]

    def reward(self, model: Any, ids: Tensor, *_: Any) -> tuple[Tensor, Tensor, None]:
        rows = self.rows(ids)
        values = pad(self.batch["old_value"][rows], (0, 1))[..., None]
        return values, self.batch["score"][rows].clone(), None

    def backward(self, loss: Tensor) -> None:
        gradients = torch.autograd.grad(loss, [self.logits, self.value])
        self.found |= dict(zip(("gradient", "value_gradient"), gradients, strict=True))
        self.found["loss"] = loss

    def log(self, metrics: dict[str, float]) -> None:
        for name in ("policy", "value"):
            self.found[f"{name}_loss"] = torch.tensor(metrics[f"loss/{name}_avg"])

    def train(self, *_: Any) -> None:
        """Nothing, as also for the other calls that change no number."""

    step = zero_grad = print = train

    def unwrap_model(self, model: Any) -> Any:
        return model

    def accumulate(self, _: Any) -> Any:
        return nullcontext()

    def gather_for_metrics(self, values: Tensor) -> Tensor:
        return values

    def get_last_lr(self) -> list[float]:
        return [0.0]


def record_ppo(options: dict[str, Any], batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """What one update of `PPOTrainer.train` computes."""
    recorder, chosen = Recorder(batch), {**DEFAULTS, **options}
    recorder.temperature = chosen["temperature"]
    sizes = dict.fromkeys(("num_ppo_epochs", "num_mini_batches", "gradient_accumulation_steps"), 1)
    sizes |= {"num_total_batches": 1, "total_episodes": ROWS, "response_length": WIDTH}
    per_batch = ("batch_size", "local_batch_size", "local_mini_batch_size")
    sizes |= dict.fromkeys((*per_batch, "per_device_train_batch_size"), ROWS)
    steps = dict.fromkeys(("logging_steps", "eval_steps", "save_steps"))
    args = SimpleNamespace(
        **chosen,
        **sizes,
        **steps,
        local_rollout_forward_batch_size=ROWS,
        ds3_gather_for_generation=False,
        num_sample_generations=0,
    )
    control = SimpleNamespace(should_save=False)
    keep = SimpleNamespace(**dict.fromkeys(("on_train_begin", "on_step_end", "on_train_end"), None))
    for name in vars(keep):
        setattr(keep, name, lambda *_: control)
    self = SimpleNamespace(
        **{"args": args, "accelerator": recorder, "optimizer": recorder, "model": recorder},
        **{"ref_model": "reference", "reward_model": "reward", "lr_scheduler": recorder},
        processing_class=SimpleNamespace(pad_token_id=PAD, eos_token_id=END),
        dataloader=[{"input_ids": ROW + torch.arange(ROWS)[:, None]}],
        state=SimpleNamespace(),
        callback_handler=keep,
        control=control,
        train_dataset_len=ROWS,
        is_deepspeed_enabled=False,
        stop_token_id=END,
        log=recorder.log,
    )
    recorder.device = torch.device("cpu")
    with replaced(recorder):
        ppo_trainer.PPOTrainer.train(self)
    return recorder.found


@contextmanager
def replaced(recorder: Recorder) -> Iterator[None]:
    """The trainer's module with the functions that run networks replaced."""
    new = {
        "batch_generation": recorder.generate,
        "forward": recorder.forward,
        "get_reward": recorder.reward,
        "unwrap_model_for_generation": lambda model, *_, **__: nullcontext(model),
    }
    old = {name: getattr(ppo_trainer, name) for name in new}
    for name, function in new.items():
        setattr(ppo_trainer, name, function)
    yield
    for name, function in old.items():
        setattr(ppo_trainer, name, function)


def record_gspo_token(options: dict[str, Any], batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The loss of the trainer in `trl.experimental.gspo_token` and its gradient by the logits."""
    made = record_grpo.trainer(options)
    made.importance_sampling_level = "sequence_token"
    logits = batch["logits"].clone().requires_grad_()
    model = SimpleNamespace(logits=logits)
    loss = GRPOTrainer._compute_loss(made, model, record_grpo.inputs(batch, options))
    (gradient,) = torch.autograd.grad(loss, logits)
    return {"loss": loss, "gradient": gradient}


def main() -> None:
    """Record all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    a = parser.parse_args()
    recorded: dict[str, Tensor] = {}
    np.random.seed(0)  # noqa: NPY002 - TRL draws the order of rows from it
    for number, (name, options) in enumerate(CASES.items()):
        generator = torch.Generator().manual_seed(1000 + number)
        for i in range(BATCHES):
            is_ppo = name.startswith("ppo")
            batch = (ppo_batch if is_ppo else response_batch)(generator)
            batch |= (record_ppo if is_ppo else record_gspo_token)(options, batch)
            recorded |= {f"{name}/{i}/{key}": value for key, value in batch.items()}
    cases = {k: {**DEFAULTS, **v} if k.startswith("ppo") else v for k, v in CASES.items()}
    write(a.file, trl.__version__, cases, recorded)


if __name__ == "__main__":
    main()
