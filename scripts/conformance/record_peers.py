"""Losses and gradients of verl, UniRL and the authors' MaxRL on random batches, for our tests.

    python scripts/conformance/record_peers.py tests/data/trl/peers.safetensors \
        --verl VERL --unirl UNIRL --maxrl MAXRL

of three checkouts (https://github.com/ + verl-project/verl 1dda039b, Tencent-Hunyuan/UniRL
30899fcf, tajwarfahim/maxrl c0698ebb). The functions of the losses are taken out of their files and
run as they are, without what the files import.
"""

import __future__

import argparse
import ast
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from batches import ROWS, log_prob_of, response_batch, write
from torch import Tensor

COMMITS = "verl 1dda039b, UniRL 30899fcf, maxrl c0698ebb"
CASES: dict[str, dict[str, Any]] = {
    "verl, dppo_tv": {"clip_ratio": 0.05},
    "verl, dppo_tv, cap": {"clip_ratio": 0.05, "clip_ratio_c": 1.2},
    "verl, dppo_kl": {"clip_ratio": 0.01},
    "verl, dppo_kl, two limits": {"clip_ratio_low": 0.005, "clip_ratio_high": 0.02},
    "verl, geo_mean": {"clip_ratio": 0.1},
    "unirl, dppo": {"delta": 0.05},
    "unirl, cppo": {"delta": 0.1, "w_min": 0.8, "delta_b": 0.02},
    "unirl, cppo, steep": {"delta": 0.05, "w_min": 0.2, "delta_b": 0.001},
    "unirl, drpo": {"epsilon": 0.15},
    "unirl, drpo, published": {"epsilon": 12.5},
    "unirl, spo": {"epsilon": 0.3, "mu_weighted": False},
    "maxrl": {},
}
BATCHES = 10


def functions(path: Path, *names: str, **known: Any) -> Any:
    """Some functions of a source file, without their decorators; they see `known` and torch."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in names]
    for node in found:
        node.decorator_list = []
    tree.body[:] = found
    space: dict[str, Any] = {"torch": torch, "defaultdict": defaultdict, **known}
    code = compile(tree, str(path), "exec", __future__.annotations.compiler_flag)
    exec(code, space)  # noqa: S102 - a checkout that the caller has chosen
    return SimpleNamespace(**{name: space[name] for name in names})


def record_verl(root: Path, name: str, options: dict[str, Any], batch: dict[str, Tensor]) -> Tensor:
    """The loss of `verl/trainer/ppo/core_algos.py`."""
    masked = functions(root / "verl/utils/torch_functional.py", "masked_sum", "masked_mean")
    losses = ("dppo_tv", "dppo_kl", "geo_mean")
    own = functions(
        root / "verl/trainer/ppo/core_algos.py",
        *("agg_loss", *(f"compute_policy_loss_{loss}" for loss in losses)),
        verl_F=masked,
        AlgoConfig=str,
    )
    limits = dict.fromkeys(("clip_ratio", "clip_ratio_low", "clip_ratio_high"))
    config = SimpleNamespace(**{**limits, **options}, global_batch_info={}, get=options.get)
    mask = batch["mask"].float()
    compute = getattr(own, f"compute_policy_loss_{name}")
    loss, _ = compute(
        *batch_log_probs(batch), batch["advantage"][:, None] * mask, mask, config=config
    )
    return loss


def record_unirl(
    root: Path, name: str, options: dict[str, Any], batch: dict[str, Tensor]
) -> Tensor:
    """The mean over tokens of a loss of `unirl/algorithms`."""
    file = "drpo" if name == "spo" else name
    names = [f"_{file}_loss"] if file == "drpo" else [f"_{file}_mask", f"_{file}_loss"]
    own = functions(root / f"unirl/algorithms/{file}.py", *names)
    mask, (old, new) = batch["mask"], batch_log_probs(batch)
    advantage = (batch["advantage"][:, None] * mask)[mask]
    given = {**options, "lengths": mask.sum(1)} if name == "cppo" else options
    losses, _ = vars(own)[names[-1]](
        new_logp=new[mask], old_logp=old[mask], advantages=advantage, **given
    )
    return losses.mean()


def record_maxrl(root: Path, generator: torch.Generator) -> dict[str, Tensor]:
    """The authors' advantages of groups of 2 with scores of 0 and 1."""
    path = root / "verl/trainer/ppo/core_algos.py"
    own = functions(path, "compute_maxrl_outcome_advantage", np=None)
    score = torch.randint(0, 2, (4 * ROWS,), generator=generator).float()
    groups = torch.arange(4 * ROWS) // ROWS
    ones = torch.ones(4 * ROWS, 1)
    found, _ = own.compute_maxrl_outcome_advantage(score[:, None].clone(), ones, groups.tolist())
    return {"score": score, "groups": groups, "advantage": found[:, 0]}


def batch_log_probs(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Log-probabilities at sampling, and now with their gradient."""
    return tuple(log_prob_of(batch[name], batch["response"]) for name in ("old_logits", "logits"))


def main() -> None:
    """Record all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    for peer in ("verl", "unirl", "maxrl"):
        parser.add_argument(f"--{peer}", type=Path, required=True)
    a = parser.parse_args()
    recorded: dict[str, Tensor] = {}
    for number, (case, options) in enumerate(CASES.items()):
        generator = torch.Generator().manual_seed(2000 + number)
        for i in range(BATCHES):
            if case == "maxrl":
                batch = record_maxrl(a.maxrl, generator)
            else:
                peer, name = case.split(", ")[:2]
                batch = response_batch(generator)
                logits = batch["logits"].requires_grad_()
                record, root = (record_verl, a.verl) if peer == "verl" else (record_unirl, a.unirl)
                loss = record(root, name, options, batch)
                (gradient,) = torch.autograd.grad(loss, logits)
                batch |= {"loss": loss, "gradient": gradient}
            recorded |= {f"{case}/{i}/{key}": value for key, value in batch.items()}
    write(a.file, COMMITS, CASES, recorded)


if __name__ == "__main__":
    main()
