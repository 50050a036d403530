"""The peak memory of PPO on a full-size GPT-2: two iterations of 32 x 75 tokens.

    python scripts/bench/memory.py              # minutes on one core
    python scripts/bench/memory.py --critic separate --reward-model

Random weights, float32, 4 passes of 4 updates; the micro-batch is that of `model=gpt2`. The second
iteration has Adam's moments from its start. The result is the process's peak resident memory, and
should stay below 6 GiB with a value head as critic: weights, reference, EMA, gradients and moments
are 6 x 0.46 GiB of it.
"""

import argparse
import tempfile

from probe import median
from processes import SIZES, make_models, measure

LIMIT = 6.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="gpt2")
    parser.add_argument("--critic", choices=["shared", "separate"], default="shared")
    parser.add_argument(
        "--reward-model", action="store_true", help="with a third network of the same size"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--override", nargs="+", default=[], metavar="KEY=VALUE")
    a = parser.parse_args()
    shape = {"batch": 32, "prompt": 8, "response": 75, "epochs": 4, "minibatches": 4}
    job = shape | {"iterations": 2, "threads": a.threads, "critic": a.critic, "more": a.override}
    with tempfile.TemporaryDirectory() as folder:
        made = make_models(folder, size=a.size, prompts=32, length=8, threads=a.threads)
        if not a.reward_model:
            del made["reward"]
        found = measure("ppo_rlfactory.py", job | made)
    phases = ", ".join(f"{name} {s:.0f} s" for name, s in median(found["iterations"]).items())
    verdict = "below" if found["peak_gib"] < LIMIT else "NOT below"
    print(f"{found['peak_gib']:.2f} GiB, {verdict} {LIMIT:.0f}; {phases}")


if __name__ == "__main__":
    main()
