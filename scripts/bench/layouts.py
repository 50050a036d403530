"""The layouts that give a run the same bits with `hardware.tile`, and what the tile costs.

python scripts/bench/layouts.py                 # 24 layouts of six algorithms, two runs at once
python scripts/bench/layouts.py nft ppo         # of these algorithms
python scripts/bench/layouts.py --cost 3        # ratios of times, each side run 3 times in turn
python scripts/bench/layouts.py --out FILE.json # also keep the digests
python scripts/bench/layouts.py --words precision=bf16 model.finetune=lora   # of other runs

Each run is of three iterations; compared are metrics, evaluations, samples, weights and moments.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
ALGORITHMS = ("nft", "grpo", "vgrpo", "ddpo", "ppo", "grpo_token")
COMMON = (
    *("iterations=3", "prompts_per_iteration=12", "group_size=4", "updates_per_iteration=2"),
    *("checkpoint.minutes=0", "checkpoint.every=1", "evaluation.prompts=5"),
)
IMAGES = ("model=tiny_sd3", "reward=compressibility", "schedule.steps=4", "evaluation.steps=2")
TEXTS = ("model=tiny_gpt2", "reward=length", "dynamics.length=8")
TILE = 4
CLOCKS = ("time", "memory")
"""How the names of metrics begin that runs need not share."""
Layout = tuple[Sequence[str], Sequence[str] | None]
"""The words of a run, and, where it is killed after two iterations, those it is resumed with."""


def batches(micro: int, sample: int) -> list[str]:
    return [f"micro_batch={micro}", f"sample_batch={sample}"]


def alone(threads: int, micro: int, sample: int) -> list[str]:
    return ["hardware=cpu", f"hardware.threads={threads}", *batches(micro, sample)]


def several(processes: int, strategy: str = "ddp") -> list[str]:
    words = [f"hardware={strategy}", "hardware.device=cpu", f"hardware.processes={processes}"]
    return [*words, "hardware.threads=1"]


def together(processes: int, strategy: str = "ddp", micro: int = 8, sample: int = 8) -> list[str]:
    return [*several(processes, strategy), *batches(micro, sample)]


def layouts() -> dict[str, Layout]:
    """By name; the first is what the others are compared with."""
    found: dict[str, Layout] = {}
    for threads, micro, sample in product((1, 2), (1, 3, 8), (5, 48)):
        words = alone(threads, micro, sample)
        found[f"{threads} threads, micro_batch {micro}, sample_batch {sample}"] = words, None
    for processes, strategy in product((2, 3, 4), ("ddp", "fsdp2")):
        words = together(processes, strategy, 3 if strategy == "ddp" else 8)
        found[f"{processes} processes, {strategy}"] = words, None
    for before, after in ((1, 1), (2, 2), (1, 2), (2, 1), (2, 4), (4, 3)):
        # the one that resumes shards, where both are several
        sides = [
            alone(1, 3, 5) if count == 1 else together(count, strategy)
            for count, strategy in ((before, "ddp"), (after, "fsdp2"))
        ]
        found[f"{before} processes killed, resumed by {after}"] = sides[0], sides[1]
    return found


KILL = {"RLFACTORY_FAULT": "between_updates:kill:5"}
"""In the third iteration, of two updates each."""


def run(folder: Path, words: Sequence[str], env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rlfactory", *words],
        cwd=folder,
        env=os.environ | {"NO_COLOR": "1"} | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if (done.returncode == 0) != (env is None):
        raise SystemExit(f"{' '.join(words)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def digest(run_folder: Path) -> str:
    """A hash of all that a run has computed."""
    found = sha256()
    for line in (run_folder / "metrics.jsonl").read_text().splitlines():
        values = {k: v for k, v in json.loads(line).items() if not k.startswith(CLOCKS)}
        found.update(json.dumps(values, sort_keys=True).encode())
    for part in ("evaluations", "samples"):
        for file in sorted(p for p in (run_folder / part).rglob("*") if p.is_file()):
            found.update(file.read_bytes())
    last = max((run_folder / "checkpoints").glob("step_*"))
    # by their bits: shards have other names than whole files, which hold the policy's twice
    found.update("".join(sorted(set(tensor_digests(last)))).encode())
    return found.hexdigest()


def tensor_digests(checkpoint: Path) -> Iterator[str]:
    """A hash of each tensor of a checkpoint: weights and the optimizer's moments."""
    from safetensors.torch import load_file

    from rlfactory.run.checkpoint.find import is_sharded
    from rlfactory.run.checkpoint.sharded import whole_tensors

    whole = whole_tensors(checkpoint, prefix="") if is_sharded(checkpoint) else {}
    for file in checkpoint.glob("*.safetensors"):
        whole |= {f"{file.stem}/{name}": tensor for name, tensor in load_file(file).items()}
    for tensor in whole.values():
        yield sha256(tensor.contiguous().flatten().numpy().tobytes()).hexdigest()


def words_of(algorithm: str) -> list[str]:
    of_kind = TEXTS if algorithm in ("ppo", "grpo_token") else IMAGES
    return [f"algo={algorithm}", *of_kind, *COMMON, f"hardware.tile={TILE}"]


def bits(algorithm: str, layout: Layout, further: Sequence[str]) -> str:
    """The digest of a run in a layout, with `further` words."""
    words, after = layout
    with TemporaryDirectory(prefix="rlfactory_layouts_") as place:
        folder = Path(place)
        common = [*words_of(algorithm), *further, "run_dir=run"]
        begun = [*common, *words]
        if after is None:
            run(folder, begun)
        else:
            run(folder, begun, KILL)
            run(folder, [*common, *after, "--force"])
        return digest(folder / "run")


def table(found: Mapping[str, Mapping[str, str]]) -> str:
    """A row a layout; `equal`, or `other` bits than those of the first layout."""
    algorithms = [*next(iter(found.values()))]
    first = next(iter(found.values()))
    head = f"| layout | {' | '.join(algorithms)} |\n|---|{'---|' * len(algorithms)}\n"
    rows = []
    for name, digests in found.items():
        said = ["equal" if digests[a] == first[a] else "other" for a in algorithms]
        rows.append(f"| {name} | {' | '.join(said)} |")
    return head + "\n".join(rows)


COSTS = {
    "default run": (["iterations=3", "evaluation.prompts=4"], 24),
    "PPO": (["model=tiny_gpt2", "iterations=3", "evaluation.prompts=4"], 32),
}
"""What is trained, and its tile: two processes have as many of these in each update."""


def seconds(words: Sequence[str]) -> float:
    """The median time of an iteration after the first."""
    with TemporaryDirectory(prefix="rlfactory_layouts_") as place:
        run(Path(place), [*words, "run_dir=run", "evaluation.every=0"])
        lines = (Path(place) / "run" / "metrics.jsonl").read_text().splitlines()
        found = [json.loads(line).get("time/iteration") for line in lines]
    return median([s for s in found if s is not None][1:])


def costs(rounds: int) -> None:
    """Print the ratios of times with a tile, by one process and by two, and without on one and two
    threads.
    """
    for name, (words, tile) in COSTS.items():
        sides = {
            "free, 2 threads": ["hardware=cpu", "hardware.threads=2"],
            "free, 1 thread": ["hardware=cpu", "hardware.threads=1"],
            "a tile, 1 process": ["hardware=cpu", f"hardware.tile={tile}"],
            "a tile, 2 processes": [*several(2), f"hardware.tile={tile}"],
        }
        found: dict[str, list[float]] = {side: [] for side in sides}
        for side in [*sides] * rounds:
            found[side].append(seconds([*words, *sides[side]]))
        free = median(found["free, 2 threads"])
        ratios = [f"{side} {median(times) / free:.2f}" for side, times in found.items()]
        print(f"{name}: {', '.join(ratios)}; load {os.getloadavg()[0]:.1f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("algorithms", nargs="*", default=[*ALGORITHMS])
    parser.add_argument("--cost", type=int, metavar="ROUNDS", help="measure the times alone")
    parser.add_argument("--words", nargs="+", default=[], help="further words of each run")
    parser.add_argument("--out", type=Path, help="a JSON file for the digests")
    arguments = parser.parse_args()
    if arguments.cost:
        costs(arguments.cost)
        return 0
    found: dict[str, dict[str, str]] = {}
    with ThreadPoolExecutor(2) as pool:
        for name, layout in layouts().items():
            asked = [(a, layout, arguments.words) for a in arguments.algorithms]
            digests = [*pool.map(lambda each: bits(*each), asked)]
            found[name] = dict(zip(arguments.algorithms, digests, strict=True))
            print(name, {a: d[:8] for a, d in found[name].items()}, file=sys.stderr, flush=True)
    print(table(found))
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(row != next(iter(found.values())) for row in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
