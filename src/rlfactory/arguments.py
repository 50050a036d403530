"""The flags of the subcommands that take flags rather than overrides."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rlfactory.problems import PlanError, Problem


def sample_arguments(words: Sequence[str]) -> argparse.Namespace:
    """What `rlfactory sample` was told."""
    parser = _parser("sample", "Draw pictures or texts with a run's weights.")
    parser.add_argument("--prompt", action="append", required=True, help="may be given again")
    parser.add_argument("--count", type=int, default=1, help="samples of each prompt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a folder; default RUN/samples/drawn")
    parser.add_argument("--weights", choices=["ema", "policy", "reference"], default="ema")
    found = parser.parse_args(words)
    _require_some("--count", found.count)
    return found


def resume_arguments(words: Sequence[str]) -> argparse.Namespace:
    """What `rlfactory resume` was told."""
    parser = argparse.ArgumentParser(
        prog="rlfactory resume", description="Go on with a run from its newest checkpoint."
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--until", type=int, metavar="N", help="stop after iteration N")
    parser.add_argument("--force", action="store_true", help="even if config.yaml was changed")
    parser.add_argument(
        "--take-over", action="store_true", help="from a process on another machine that is gone"
    )
    found = parser.parse_args(words)
    if found.until is not None:
        _require_some("--until", found.until)
    return found


def inspect_arguments(words: Sequence[str]) -> argparse.Namespace:
    """What `rlfactory inspect` was told."""
    parser = _parser(
        "inspect", "Look inside a tuned language model: which tokens rose, and what wrote them."
    )
    parser.add_argument("--weights", choices=["ema", "policy"], default="ema")
    parser.add_argument("--prompts", type=int, default=32, help="how many held-out prompts to read")
    found = parser.parse_args(words)
    _require_some("--prompts", found.prompts)
    return found


def export_arguments(words: Sequence[str]) -> argparse.Namespace:
    """What `rlfactory export` was told."""
    parser = _parser("export", "Write a run's weights so that other libraries open them.")
    parser.add_argument("--to", type=Path, required=True, help="a folder that is not there yet")
    parser.add_argument("--merge", action="store_true", help="adapters made part of the network")
    parser.add_argument("--weights", choices=["ema", "policy"], help="default evaluation.weights")
    found = parser.parse_args(words)
    found.to = found.to.expanduser()
    if found.to.exists() and (not found.to.is_dir() or any(found.to.iterdir())):
        what = "is not empty" if found.to.is_dir() else "is a file"
        raise PlanError([Problem("--to", f"{found.to} {what}, and nothing is overwritten")])
    return found


def _parser(command: str, purpose: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"rlfactory {command}", description=purpose)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--best", action="store_true", help="the best checkpoint, not the last")
    return parser


def _require_some(flag: str, count: int) -> None:
    if count < 1:
        raise PlanError([Problem(flag, f"is {count}; allowed are 1 or more")])
