"""The time of a PPO or GRPO iteration relative to TRL's: same models, batch, updates, threads.

    python scripts/bench/trl_ppo.py --make-environment trl-environment  # once; then measures
    python scripts/bench/trl_ppo.py --python trl-environment/bin/python
    python scripts/bench/trl_ppo.py --python trl-environment/bin/python --size gpt2 --iterations 3
    python scripts/bench/trl_ppo.py --make-environment trl-1.16 --algorithm grpo

TRL 1.12 is the last release with PPO, 1.16 is compared in GRPO. It runs in an environment of its
own, with the versions of constraints.txt. Each side is a process: every response has its full
length, everything is float32, the first iteration is warm-up, and memory is the process's peak. A
rollout includes rewards, KL and advantages; learning is the rest. GRPO has no critic and no
reference, and rewards by a function.
"""

import argparse
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probe import median
from processes import SIZES, environment, keep, make_models, measure

RELEASES = {"ppo": "trl==1.12.0", "grpo": "trl==1.16.0"}
TRL = ["torch", "transformers", "accelerate", "datasets"]
CRITICS = ["separate", "shared"]

Result = dict[str, Any]


def results(a: argparse.Namespace, trl_python: Path) -> dict[str, Result]:
    """The results of all sides, one after another."""
    keys: tuple[str, ...] = ("batch", "prompt", "response", "epochs", "minibatches", "threads")
    keys += ("group", "cpu_time")
    job = {key: getattr(a, key) for key in keys} | {"iterations": a.iterations + 1}
    critics = a.critic if a.algorithm == "ppo" else ["none"]
    with tempfile.TemporaryDirectory() as folder:
        job |= make_models(
            folder,
            size=a.size,
            prompts=a.batch,
            length=a.prompt,
            threads=a.threads,
            policy=a.policy,
        )
        if a.algorithm == "grpo":
            job.pop("reward")
        found = {"trl": measure(f"{a.algorithm}_trl.py", job, trl_python)}
        for critic in critics:
            ours = measure("ppo_rlfactory.py", job | {"critic": critic, "more": a.override})
            found[f"rlfactory, {critic} critic"] = ours
    return found


def row(result: Result, trl: Result, samples: int, tokens: int) -> dict[str, float]:
    """Medians of a side, and their ratios to TRL's."""
    seconds, theirs = median(result["iterations"]), median(trl["iterations"])
    total = sum(seconds.values())
    return {
        **{f"{phase} s": spent for phase, spent in seconds.items()},
        "iteration s": total,
        "tokens/s": tokens / total,
        "samples/s": samples / total,
        "times faster": sum(theirs.values()) / total,
        "peak GiB": result["peak_gib"],
        "of TRL's": result["peak_gib"] / trl["peak_gib"],
    }


def table(rows: Mapping[str, Mapping[str, float]]) -> str:
    """A line for each side."""
    names = list(next(iter(rows.values())))
    width = max(map(len, rows))
    lines = [" " * width + "".join(f"{name:>14}" for name in names)]
    for side, values in rows.items():
        lines.append(f"{side:<{width}}" + "".join(f"{values[name]:>14.2f}" for name in names))
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    environment = parser.add_mutually_exclusive_group(required=True)
    environment.add_argument("--make-environment", type=Path, metavar="FOLDER")
    environment.add_argument("--python", type=Path, help="the Python of an environment with TRL")
    parser.add_argument("--size", choices=SIZES, default="tiny_gpt2")
    parser.add_argument("--policy", help="a folder with weights, instead of random ones")
    parser.add_argument("--critic", choices=CRITICS, nargs="+", default=CRITICS)
    parser.add_argument("--algorithm", choices=RELEASES, default="ppo")
    parser.add_argument("--group", type=int, default=8, help="responses to a prompt, of GRPO")
    parser.add_argument("--cpu-time", action="store_true", help="for a machine that is busy")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=8)
    parser.add_argument("--response", type=int, default=75)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=5, help="measured iterations")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--override", nargs="+", default=[], metavar="KEY=VALUE", help="overrides for rlfactory"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    return parser.parse_args()


def main() -> None:
    a = arguments()
    load = os.getloadavg()[0]
    trl_python = a.python or environment(a.make_environment, [RELEASES[a.algorithm], *TRL])
    found = results(a, trl_python)
    tokens = a.batch * a.response
    rows = {side: row(result, found["trl"], a.batch, tokens) for side, result in found.items()}
    print(f"{a.threads} threads on {os.cpu_count()} cores; load before: {load:.2f}")
    print(table(rows))
    keep(a, load=load, summary=rows, measured=found)


if __name__ == "__main__":
    main()
