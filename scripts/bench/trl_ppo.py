"""The time of a PPO or GRPO iteration relative to TRL's: same models, batch, updates, threads.

    python scripts/bench/trl_ppo.py --environment trl-1.12
    python scripts/bench/trl_ppo.py --environment trl-1.12 --size gpt2 --rounds 1
    python scripts/bench/trl_ppo.py --environment trl-1.16 --algorithm grpo

TRL 1.12 is the last release with PPO, 1.16 is compared in GRPO. It runs in an environment of its
own, created where there is none, with the versions of constraints.txt. Each side is a process, and
they take turns: every response has its full length, everything is float32, the first iteration is
warm-up, and memory is the process's peak. GRPO has no critic and no reference, and rewards by a
function.
"""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from processes import SIZES, alternate, environment, make_models
from sides import finish, machine, parser, side_of

RELEASES = {"ppo": "trl==1.12.0", "grpo": "trl==1.16.0"}
TRL = ["torch", "transformers", "accelerate", "datasets"]
CRITICS = ["separate", "shared"]
KEYS = ("batch", "prompt", "response", "epochs", "minibatches", "threads", "group")


def jobs(a: argparse.Namespace, folder: str) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """The script and the job of each side."""
    job = {key: getattr(a, key) for key in KEYS}
    job |= {"iterations": a.iterations + 1, "more": a.override}
    models = {"size": a.size, "prompts": a.batch, "length": a.prompt, "policy": a.policy}
    job |= make_models(folder, **models, threads=a.threads)
    trl = {"TRL": (f"{a.algorithm}_trl.py", job)}
    if a.algorithm == "grpo":
        del job["reward"]
        return trl | {"rlfactory": ("ppo_rlfactory.py", job | {"critic": "none"})}
    ours = {c: ("ppo_rlfactory.py", job | {"critic": c}) for c in a.critic}
    return trl | {f"rlfactory, {critic} critic": each for critic, each in ours.items()}


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--environment", type=Path, required=True, help="TRL's, a folder")
    made.add_argument("--size", choices=SIZES, default="tiny_gpt2")
    made.add_argument("--policy", help="a folder with weights, instead of random ones")
    made.add_argument("--critic", choices=CRITICS, nargs="+", default=CRITICS)
    made.add_argument("--algorithm", choices=RELEASES, default="ppo")
    made.add_argument("--group", type=int, default=8, help="responses to a prompt, of GRPO")
    made.add_argument("--batch", type=int, default=32)
    made.add_argument("--prompt", type=int, default=8)
    made.add_argument("--response", type=int, default=75)
    made.add_argument("--epochs", type=int, default=4)
    made.add_argument("--minibatches", type=int, default=4)
    made.add_argument("--iterations", type=int, default=3, help="measured iterations per process")
    made.add_argument("--rounds", type=int, default=2, help="processes per side")
    made.add_argument("--threads", type=int, default=1, help="CPU threads of each side")
    made.add_argument(
        "--override", nargs="+", default=[], metavar="KEY=VALUE", help="overrides for rlfactory"
    )
    return made.parse_args()


def main() -> None:
    a, began = arguments(), machine()
    python = environment(a.environment, [RELEASES[a.algorithm], *TRL])
    with tempfile.TemporaryDirectory() as folder:
        found = alternate(jobs(a, folder), a.rounds, python)
    finish(a, began, {"iteration": {side: side_of(some) for side, some in found.items()}})


if __name__ == "__main__":
    main()
