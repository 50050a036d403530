"""The time of a DDPO iteration relative to TRL's: same pipeline, samples, steps, updates, threads.

    python scripts/bench/trl_ddpo.py --make-environment trl-environment  # once; then measures
    python scripts/bench/trl_ddpo.py --python trl-environment/bin/python
    python scripts/bench/trl_ddpo.py --python trl-environment/bin/python --steps 20 --items 60

TRL 0.23 is the last release with DDPO, and runs in an environment of its own, with the versions of
constraints.txt: the same torch, the same UNet. Each side is a process, and they alternate;
everything is float32, `tiny_sd` generates 64x64 images and their brightness is the reward. A
rollout includes rewards and advantages; learning is the rest. Rates are by CPU time, which a busy
machine hardly changes; wall times are in the JSON.

All sides learn the same: the 24 samples of TRL's example, 3 per update. They differ in how many are
computed at once: `--sample-rows` and `--rows` are those of the example, with which both sides run.
"At once" samples all 24 together, and learns from as many as TRL allows: the samples of an update,
one step at a time. rlfactory can also batch their steps: `--items` at once.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from probe import median
from processes import environment, keep, measure
from trl_ppo import table

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


def results(a: argparse.Namespace, trl_python: Path) -> dict[str, list[Result]]:
    """The results of all sides, in alternation."""
    keys = ("samples", "updates", "steps", "guidance", "finetune", "threads")
    job = {key: getattr(a, key) for key in keys}
    job |= {"iterations": a.iterations + 1, "pipeline": str(PIPELINE), "more": a.override}
    found: dict[str, list[Result]] = {side: [] for side in sides(a)}
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.txt"
        lines = [f"a {color} {shape}" for color in COLORS for shape in SHAPES]
        prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for _ in range(a.rounds):
            for side, (script, own) in sides(a).items():
                asked = job | own | {"prompts": str(prompts)}
                python = trl_python if script == "ddpo_trl.py" else sys.executable
                found[side].append(measure(script, asked, python))
                print(f"{side}: {found[side][-1]}", file=sys.stderr, flush=True)
    require_alike(found)
    return found


def require_alike(found: Mapping[str, Sequence[Result]]) -> None:
    """Raise an error if a side evaluated the network more or less often than the others."""
    kinds = ("rollout rows", "learn rows")
    rows = {side: [some[0]["asked"][kind] for kind in kinds] for side, some in found.items()}
    if len(set(map(tuple, rows.values()))) > 1:
        sys.exit(f"network evaluations of an iteration, to sample and to learn, differ: {rows}")


def row(measured: Sequence[Result], theirs: Sequence[Result], samples: int) -> dict[str, float]:
    """Medians of a side, and their ratios to TRL's."""
    seconds, trl = _median(measured), _median(theirs)
    total = seconds["rollout cpu"] + seconds["learn cpu"]
    peak, loaded = (min(one[key] for one in measured) for key in ("peak_gib", "loaded_gib"))
    return {
        "rollout s": seconds["rollout cpu"],
        "learn s": seconds["learn cpu"],
        "passes": sum(v for k, v in measured[0]["asked"].items() if k.endswith("passes")),
        "samples/s": samples / total,
        "times faster": (trl["rollout cpu"] + trl["learn cpu"]) / total,
        "by the wall": (trl["rollout"] + trl["learn"]) / (seconds["rollout"] + seconds["learn"]),
        "peak GiB": peak,
        "of its own": peak - loaded,
    }


def _median(measured: Sequence[Result]) -> dict[str, float]:
    """Medians over all rounds, without the first iteration of each process."""
    counted = [later for one in measured for later in one["iterations"][1:]]
    return median(measured[0]["iterations"][:1] + counted)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--make-environment", type=Path, metavar="FOLDER")
    where.add_argument("--python", type=Path, help="the Python of an environment with TRL")
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--updates", type=int, default=8, help="optimizer steps per iteration")
    parser.add_argument(
        "--steps", type=int, default=10, help="DDIM steps, all of which are trained on"
    )
    parser.add_argument("--guidance", type=float, default=5.0, help="1: none")
    parser.add_argument("--finetune", choices=["lora", "full"], default="lora")
    parser.add_argument("--sample-rows", type=int, default=6, help="samples drawn at once")
    parser.add_argument("--rows", type=int, default=3, help="training items at once")
    parser.add_argument(
        "--items",
        type=int,
        nargs="+",
        default=[12, 30],
        help="further values of --rows for rlfactory",
    )
    parser.add_argument("--iterations", type=int, default=1, help="measured iterations per process")
    parser.add_argument("--rounds", type=int, default=2, help="processes per side")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--override", nargs="+", default=[], metavar="KEY=VALUE", help="overrides for rlfactory"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    a = parser.parse_args()
    if a.samples % a.updates or a.samples % a.sample_rows:
        parser.error("--updates and --sample-rows must divide --samples")
    if a.samples // a.updates % a.rows or a.sample_rows % a.rows:
        parser.error("--rows must divide --sample-rows and an update's samples")
    return a


def main() -> None:
    a = arguments()
    load = os.getloadavg()[0]
    trl_python = environment(a.make_environment, TRL) if a.make_environment else a.python
    found = results(a, trl_python)
    rows = {side: row(some, found["TRL"], a.samples) for side, some in found.items()}
    print(f"{a.threads} threads on {os.cpu_count()} cores; load before: {load:.2f}")
    print(table(rows))
    keep(a, load=load, summary=rows, measured=found)


if __name__ == "__main__":
    main()
