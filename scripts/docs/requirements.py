"""The table of docs/requirements.md: memory by model, as the plan estimates it."""

import re

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.plan import Plan

ROWS = {
    "sd14": ("ddpo", "grpo"),
    "sd35": ("nft", "grpo"),
    "flux": ("nft", "grpo"),
    "gpt2": ("ppo",),
    "qwen3": ("grpo_token",),
}
"""Models of full size, and the algorithms that a row is for."""
GPU = "h100"


def table() -> str:
    """A row a model and algorithm, on one GPU."""
    lines = [
        "| command | peak, GiB | with `memory=low` | iterations |",
        "|---|---:|---:|---:|",
    ]
    for model, algorithms in ROWS.items():
        for algorithm in algorithms:
            lines.append(_row(f"model={model}", f"algo={algorithm}"))
    return "\n".join(lines)


def _row(*words: str) -> str:
    plan, low = _plan(*words), _plan(*words, "memory=low")
    iterations = plan.config["iterations"]
    cells = [f"`{' '.join(words)}`", _peak(plan), _peak(low), f"{iterations:,}"]
    return f"| {' | '.join(cells)} |"


def _plan(*words: str) -> Plan:
    return plan_from_words(*words, "hardware.device=cuda", f"hardware.gpu={GPU}")


def _peak(plan: Plan) -> str:
    found = re.search(r"about ([\d.]+) GiB", plan.derived.get("peak memory", ""))
    return found[1] if found else "–"
