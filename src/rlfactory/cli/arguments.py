"""The flags of the subcommands that take flags rather than overrides."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from rlfactory.config.problems import PlanError, Problem


def sample_arguments(words: Sequence[str]) -> argparse.Namespace:
    """The arguments of `rlfactory sample`."""
    parser = _parser("sample", "Generate images or texts with a run's weights.")
    prompts = parser.add_mutually_exclusive_group(required=True)
    prompts.add_argument("--prompt", action="append", help="may be given again")
    prompts.add_argument("--prompts", type=Path, metavar="FILE", help="a .txt or .jsonl file")
    parser.add_argument(
        "--image", type=Path, action="append", help="a picture to be edited, one for each --prompt"
    )
    parser.add_argument("--count", type=int, default=1, help="samples of each prompt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="sampling steps of images")
    parser.add_argument("--size", type=_size, help="pixels: 512, or height and width as 480x832")
    parser.add_argument("--guidance", type=float, help="guidance scale of images")
    parser.add_argument(
        "--temperature", type=float, help="of tokens; 0: always the most likely token"
    )
    parser.add_argument(
        "--out", type=Path, help="a new folder; default RUN/samples/drawn_001, drawn_002, ..."
    )
    parser.add_argument(
        "--weights", choices=["ema", "policy", "reference"], help="default evaluation.weights"
    )
    parsed = parser.parse_intermixed_args(words)
    for flag in ("count", "steps"):
        if (number := getattr(parsed, flag)) is not None:
            _require_positive(f"--{flag}", number)
    for flag in ("temperature", "guidance"):
        if (value := getattr(parsed, flag)) is not None and not 0 <= value < math.inf:
            raise PlanError([Problem(f"--{flag}", f"is {value:g}; allowed are 0 or more")])
    if parsed.out is not None:
        parsed.out = _unused_folder("--out", parsed.out)
    return parsed


def _size(text: str) -> int | list[int]:
    """The edge of a square, or height and width."""
    edges = [int(edge) for edge in text.split("x")]
    if len(edges) > 2 or min(edges) < 1:
        raise argparse.ArgumentTypeError(f"{text}: allowed are a number or two as 480x832")
    return edges[0] if len(edges) == 1 else edges


def resume_arguments(words: Sequence[str]) -> argparse.Namespace:
    """The arguments of `rlfactory resume`."""
    parser = _parser("resume", "Resume a run from its newest checkpoint.", best=False)
    parser.add_argument(
        "--until", type=int, metavar="N", help="pause after iteration N; beyond the end: extend"
    )
    parser.add_argument("--force", action="store_true", help="even if config.yaml was changed")
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="take the lock from a process on another machine that has died",
    )
    parsed = parser.parse_intermixed_args(words)
    if parsed.until is not None:
        _require_positive("--until", parsed.until)
    return parsed


def verify_arguments(words: Sequence[str]) -> argparse.Namespace:
    """The arguments of `rlfactory verify`."""
    parser = _parser(
        "verify", "Train a stretch of a run again, and compare it bit by bit.", best=False
    )
    parser.add_argument(
        "--iteration",
        type=int,
        metavar="N",
        help="until iteration N, from the checkpoint before it; default: between the last two"
        " checkpoints",
    )
    parsed = parser.parse_intermixed_args(words)
    if parsed.iteration is not None:
        _require_positive("--iteration", parsed.iteration)
    return parsed


def inspect_arguments(words: Sequence[str]) -> argparse.Namespace:
    """The arguments of `rlfactory inspect`."""
    parser = _parser(
        "inspect", "Look inside a tuned language model: which tokens rose, and what wrote them."
    )
    parser.add_argument("--weights", choices=["ema", "policy"], help="default evaluation.weights")
    parser.add_argument(
        "--prompts", type=int, default=32, help="how many evaluation prompts to read"
    )
    parsed = parser.parse_intermixed_args(words)
    _require_positive("--prompts", parsed.prompts)
    return parsed


def export_arguments(words: Sequence[str]) -> argparse.Namespace:
    """The arguments of `rlfactory export`."""
    parser = _parser("export", "Write a run's weights so that other libraries open them.")
    parser.add_argument("--to", type=Path, help="a new or empty folder")
    parser.add_argument("--push", metavar="USER/NAME", help="upload to the Hugging Face hub")
    parser.add_argument("--private", action="store_true", help="--push to a private repository")
    parser.add_argument("--merge", action="store_true", help="merge the adapters into the network")
    parser.add_argument(
        "--format",
        choices=["diffusers", "kohya", "comfyui"],
        default="diffusers",
        help="key names of LoRA adapters of images: diffusers' and PEFT's, or one file for others",
    )
    parser.add_argument("--weights", choices=["ema", "policy"], help="default evaluation.weights")
    parsed = parser.parse_intermixed_args(words)
    if parsed.to is None and parsed.push is None:
        message = "where to? --to FOLDER, --push USER/NAME for the Hugging Face hub, or both"
        typed = f"rlfactory export {parsed.run} --to {parsed.run.name}-export"
        raise PlanError([Problem("--to", f"{message}; type {typed}")])
    if parsed.private and parsed.push is None:
        raise PlanError([Problem("--private", "goes with --push USER/NAME")])
    if parsed.to is not None:
        parsed.to = _unused_folder("--to", parsed.to)
    return parsed


def reward_model_arguments(words: Sequence[str]) -> argparse.Namespace:
    """The arguments of `rlfactory reward-model`."""
    parser = argparse.ArgumentParser(
        prog="rlfactory reward-model",
        description="Train a reward model on pairs of completions (Bradley-Terry), for"
        " reward=reward_model and model.value_path.",
    )
    parser.add_argument(
        "base", metavar="BASE", help="a language model: a run folder, a folder, zoo:NAME or hub id"
    )
    parser.add_argument(
        "--pairs",
        type=Path,
        required=True,
        metavar="FILE",
        help="a .jsonl file: prompt, chosen and rejected in each line; reference if there is one",
    )
    parser.add_argument("--to", type=Path, required=True, help="a new or empty folder")
    parser.add_argument("--epochs", type=int, default=1, help="passes over the pairs")
    parser.add_argument("--lr", type=float, default=1e-5, help="falls linearly to 0")
    parser.add_argument("--batch", type=int, default=64, help="pairs of an optimizer step")
    parser.add_argument("--micro-batch", type=int, default=16, help="pairs of a pass")
    parser.add_argument(
        "--held-out", type=float, default=0.1, help="share of the prompts to measure accuracy on"
    )
    parser.add_argument("--seed", type=int, default=0)
    parsed = parser.parse_intermixed_args(words)
    for flag in ("epochs", "batch", "micro_batch"):
        _require_positive(f"--{flag.replace('_', '-')}", getattr(parsed, flag))
    for flag, value in (("--lr", parsed.lr), ("--held-out", parsed.held_out)):
        if not 0 < value < 1:
            raise PlanError([Problem(flag, f"is {value:g}; allowed is a number between 0 and 1")])
    if parsed.seed < 0:
        raise PlanError([Problem("--seed", f"is {parsed.seed}; allowed are 0 or more")])
    parsed.to = _unused_folder("--to", parsed.to)
    return parsed


def _parser(command: str, purpose: str, *, best: bool = True) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"rlfactory {command}", description=purpose)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],  # without it argparse reports them as required
        metavar="KEY=PATH",
        help="model.path=FOLDER where it was moved",
    )
    if best:
        parser.add_argument("--best", action="store_true", help="the best checkpoint, not the last")
    return parser


def _unused_folder(flag: str, folder: Path) -> Path:
    """A folder to write to; PlanError if something is there that would be overwritten."""
    folder = folder.expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        reason = "is not empty" if folder.is_dir() else "is a file"
        raise PlanError([Problem(flag, f"{folder} {reason}, and nothing is overwritten")])
    return folder


def _require_positive(flag: str, count: int) -> None:
    if count < 1:
        raise PlanError([Problem(flag, f"is {count}; allowed are 1 or more")])
