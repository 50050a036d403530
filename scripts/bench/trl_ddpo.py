"""The time of a DDPO iteration relative to TRL's: same pipeline, samples, steps, updates, threads.

    python scripts/bench/trl_ddpo.py --environment trl-0.23
    python scripts/bench/trl_ddpo.py --environment trl-0.23 --steps 20 --items 60

TRL 0.23 is the last release with DDPO, and runs in an environment of its own, created where there
is none, with the versions of constraints.txt: the same torch, the same UNet. Each side is a
process, and they take turns; everything is float32, `tiny_sd` generates 64x64 images and their
brightness is the reward.

All sides learn the same: the 24 samples of TRL's example, 3 per update. They differ in how many are
computed at once: `--sample-rows` and `--rows` are those of the example, with which both sides run.
"At once" samples all 24 together, and learns from as many as TRL allows: the samples of an update,
one step at a time. rlfactory can also batch their steps: `--items` at once.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from processes import alternate, environment
from sides import finish, machine, parser, side_of

from rlfactory.model.pipelines.local_models import zoo_path

PIPELINE = zoo_path("tiny_sd")
TRL = ["trl==0.23.1", "torch", "transformers", "diffusers", "peft", "accelerate", "datasets"]
SHAPES = ["circle", "square", "triangle"]
COLORS = ["red", "green", "blue", "yellow"]

Job = dict[str, Any]
Result = dict[str, Any]


def sides(a: argparse.Namespace) -> dict[str, tuple[str, Job]]:
    """The settings to compare, each with the samples that it computes at once."""
    given = {"sample_rows": a.sample_rows, "rows": a.rows}
    together = {"sample_rows": a.samples, "rows": a.samples // a.updates}
    found: dict[str, tuple[str, Job]] = {
        "TRL": ("ddpo_trl.py", given),
        "TRL, at once": ("ddpo_trl.py", together),
        "rlfactory": ("ddpo_rlfactory.py", given),
    }
    for items in a.items:
        found[f"rlfactory, {items} items"] = ("ddpo_rlfactory.py", together | {"rows": items})
    return found


def jobs(a: argparse.Namespace, folder: str) -> dict[str, tuple[str, Job]]:
    """The script and the job of each side."""
    prompts = Path(folder) / "prompts.txt"
    lines = [f"a {color} {shape}" for color in COLORS for shape in SHAPES]
    prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    keys = ("samples", "updates", "steps", "guidance", "finetune", "threads")
    job = {key: getattr(a, key) for key in keys}
    job |= {"iterations": a.iterations + 1, "pipeline": str(PIPELINE), "more": a.override}
    job |= {"prompts": str(prompts)}
    return {side: (script, job | own) for side, (script, own) in sides(a).items()}


def require_alike(found: Mapping[str, Sequence[Result]]) -> None:
    """Raise an error if a side evaluated the network more or less often than the others."""
    kinds = ("rollout rows", "learn rows")
    rows = {side: [some[0]["asked"][kind] for kind in kinds] for side, some in found.items()}
    if len(set(map(tuple, rows.values()))) > 1:
        sys.exit(f"network evaluations of an iteration, to sample and to learn, differ: {rows}")


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--environment", type=Path, required=True, help="TRL's, a folder")
    made.add_argument("--samples", type=int, default=24)
    made.add_argument("--updates", type=int, default=8, help="optimizer steps per iteration")
    made.add_argument(
        "--steps", type=int, default=10, help="DDIM steps, all of which are trained on"
    )
    made.add_argument("--guidance", type=float, default=5.0, help="1: none")
    made.add_argument("--finetune", choices=["lora", "full"], default="lora")
    made.add_argument("--sample-rows", type=int, default=6, help="samples drawn at once")
    made.add_argument("--rows", type=int, default=3, help="training items at once")
    made.add_argument(
        "--items",
        type=int,
        nargs="+",
        default=[12, 30],
        help="further values of --rows for rlfactory",
    )
    made.add_argument("--iterations", type=int, default=1, help="measured iterations per process")
    made.add_argument("--rounds", type=int, default=2, help="processes per side")
    made.add_argument("--threads", type=int, default=1, help="CPU threads of each side")
    made.add_argument(
        "--override", nargs="+", default=[], metavar="KEY=VALUE", help="overrides for rlfactory"
    )
    a = made.parse_args()
    if a.samples % a.updates or a.samples % a.sample_rows:
        made.error("--updates and --sample-rows must divide --samples")
    if a.samples // a.updates % a.rows or a.sample_rows % a.rows:
        made.error("--rows must divide --sample-rows and an update's samples")
    return a


def main() -> None:
    a, began = arguments(), machine()
    python = environment(a.environment, TRL)
    with tempfile.TemporaryDirectory() as folder:
        found = alternate(jobs(a, folder), a.rounds, python)
    require_alike(found)
    finish(a, began, {"iteration": {side: side_of(some) for side, some in found.items()}})


if __name__ == "__main__":
    main()
