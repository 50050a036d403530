"""The same experiment on one process and on two: by DDP, and with a divided network (FSDP2)."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rlfactory.run.checkpoint.find import is_sharded
from rlfactory.run.checkpoint.sharded import whole_tensors

pytestmark = [pytest.mark.dist, pytest.mark.timeout(900)]

Ran = Callable[[Sequence[Mapping[str, Any]]], list[dict[str, Any]]]
Traces = Callable[[Path], dict[str, Any]]

PAIRS = Path(__file__).parents[1] / "data" / "pairs.jsonl"
IMAGE_PAIRS = PAIRS.with_name("image_pairs.jsonl")
SMALL = ["evaluation.prompts=3", "evaluation.grid=3", "checkpoint.minutes=0"]
# Adam divides by the root of a gradient's square: at its usual eps, rounding errors of gradients
# that should be 0 are steps of the size of lr
FIRM = ["optimizer.eps=1e-5"]
IMAGES = [
    *SMALL,
    *FIRM,
    "model.size=32",
    "prompts_per_iteration=2",
    "group_size=5",
    "updates_per_iteration=5",
]
WORDS = {
    "grpo": ["algo=grpo", "regularizer=kl_v", "schedule.steps=4", "sample_batch=5", *IMAGES],
    # ranks of two trees each, in updates of whole groups; evaluations end with the reference
    "branch_grpo": [
        *("algo=branch_grpo", "regularizer=kl_v", "schedule.steps=4", *SMALL, *FIRM),
        *("prompts_per_iteration=4", "group_size=8", "branches=4", "tree.splits=[0,1]"),
        *("sample_batch=8", "updates_per_iteration=2", "shares=groups", "algo.width=extremes"),
        "evaluation.policy_fraction=0.5",
    ],
    "nft": ["algo=nft", "regularizer=kl_v", "schedule.steps=3", "sample_batch=5", *IMAGES],
    "dgpo": [
        *("algo=dgpo", "regularizer=kl_v", "schedule.steps=6", "sample_batch=5", *SMALL, *FIRM),
        *("prompts_per_iteration=4", "group_size=3", "updates_per_iteration=2", "micro_batch=4"),
    ],
    "draft": [
        *("algo=draft", "reward=jpeg_standin", "schedule.steps=3", "sample_batch=3", *SMALL),
        "optimizer.eps=1e-3",  # its gradient bends within rounding errors of pixels
        *("prompts_per_iteration=6", "group_size=1", "updates_per_iteration=1", "micro_batch=2"),
        *("algo.last_steps=2", "algo.truncation=random", "regularizer=kl_v"),
    ],
    "diffusion_dpo": [
        *("algo=dpo", "schedule.steps=3", "sample_batch=3", *SMALL, *FIRM, "group_size=3"),
        "algo.beta=1",  # it multiplies rounding errors of predictions
        *("prompts_per_iteration=6", "updates_per_iteration=2"),
    ],
    "diffusion_dpo_offline": [
        *("algo=diffusion_dpo_offline", "prompts=file", f"prompts.path={IMAGE_PAIRS}"),
        *("schedule.steps=3", "sample_batch=2", *SMALL, *FIRM, "algo.beta=1"),
        *("prompts_per_iteration=4", "updates_per_iteration=2", "evaluation.prompts=2"),
    ],
    # three pairs an update: a process has more of them than the other
    "dpo": [
        *("model=tiny_gpt2", "algo=dpo", "prompts=file", f"prompts.path={PAIRS}", *SMALL),
        *("prompts_per_iteration=6", "updates_per_iteration=2"),
        *("reward=length", "dynamics.length=8", "optimizer.eps=1e-3", "micro_batch=2"),
    ],
    "ppo": [
        *("model=tiny_gpt2", "prompts_per_iteration=10", "updates_per_iteration=5"),
        # firmer still: a token is another one where a draw meets a rounding error, as one of some
        # thousands does where there are 4,096 tokens to choose from
        *("sample_batch=5", "dynamics.length=8", *SMALL, "optimizer.eps=1e-3"),
        "dynamics.top_k=32",
    ],
}
"""Two iterations of five updates; of two with trees. One process draws the batches that two
would."""
TILES = {"dpo": 1, "draft": 3}
"""Where 5 does not divide the samples of a process."""
TWICE = ("ppo",)
"""Whose run by two processes is repeated to the bit; nft's is below, stopped and resumed."""
TWO = ["hardware.device=cpu", "hardware.processes=2", "hardware.timeout=120"]
LENGTH = ["iterations=2"]
LORA = "model.finetune=lora"


def attempt(name: str, *words: str, processes: int = 2) -> dict[str, Any]:
    hardware = [] if any(w.startswith("hardware=") for w in words) else ["hardware=cpu"]
    several = TWO if processes > 1 else []
    return {"words": [f"run_dir={name}", *hardware, *several, *words], "processes": processes}


def newest(run: Path) -> Path:
    return sorted((run / "checkpoints").glob("step_*"))[-1]


def weights(run: Path) -> dict[str, torch.Tensor]:
    place = newest(run)
    if not is_sharded(place):
        return load_file(place / "weights.safetensors")
    return whole_tensors(place)


def files(run: Path) -> dict[str, str]:
    """The names of a checkpoint's files, and what those say that are not of the run alone."""
    place = newest(run)
    found = {path.relative_to(place).as_posix(): path for path in place.rglob("*.*")}
    return {k: v.read_text() if k.endswith("config.json") else "" for k, v in found.items()}


def metrics(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def assert_same_experiment(one: Path, other: Path, rel: float = 1e-5) -> None:
    """Evaluations alike, rewards to rounding, parameters within 1e-6, losses nearly."""
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys()
    far = max(float((ours[key] - theirs[key]).abs().max()) for key in ours)
    moved = [
        (ours[k] - ours[f"reference{k[6:]}"]).abs().max()
        for k in ours
        if "policy/" in k and f"reference{k[6:]}" in ours
    ]
    assert far < 1e-6
    if not is_sharded(newest(other)):
        assert files(one) == files(other), "the export as well"
    assert max(moved) > 1e-4, "otherwise it means nothing"
    for mine, others in zip(metrics(one), metrics(other), strict=True):
        assert mine.keys() == others.keys()
        for name in mine:
            if name.startswith(("reward/", "eval/", "text/")):
                assert mine[name] == pytest.approx(others[name], abs=1e-6, rel=rel), name
            if name.startswith("nfe/"):
                assert mine[name] == others[name], name
            if name.startswith(("loss/", "kl/")):
                assert mine[name] == pytest.approx(others[name], abs=1e-4, rel=1e-2), name


KEPT = ("grpo", "ppo", "dpo")
"""Images, texts and pairs; nft is stopped, resumed and divided in three below."""


@pytest.mark.parametrize(
    "algo",
    [pytest.param(a, marks=() if a in KEPT else pytest.mark.whole) for a in WORDS],
)
def test_two_processes_are_one(algo: str, ran: Ran, tmp_path: Path, traces: Traces) -> None:
    words = [*WORDS[algo], *LENGTH]
    asked = [
        attempt("one", *words, processes=1),
        attempt("ddp", *words, "hardware=ddp"),
        attempt("fsdp2", *words, "hardware=fsdp2"),
    ]
    if algo in TWICE:
        asked.append(attempt("again", *words, "hardware=ddp"))
    found = ran(asked)
    assert {code for each in found for code in each["codes"]} == {0}, found
    rel = 1e-3 if algo == "draft" else 1e-5  # its reward sees a byte that is rounded the other way
    assert_same_experiment(tmp_path / "one", tmp_path / "ddp", rel)
    assert_same_experiment(tmp_path / "one", tmp_path / "fsdp2", rel)
    if algo in TWICE:
        assert traces(tmp_path / "ddp") == traces(tmp_path / "again")
    said = found[1]["said"]
    assert said.count("iteration 2/2") == 1, "the others are quiet"


@pytest.mark.parametrize(
    "algo",
    [
        pytest.param(a, marks=() if a in TWICE else pytest.mark.whole)
        for a in ("nft", "dpo", "draft", "grpo", *TWICE)
    ],
)
def test_with_a_tile_no_layout_changes_a_bit(
    algo: str, ran: Ran, tmp_path: Path, traces: Traces
) -> None:
    words = [*WORDS[algo], *LENGTH, f"hardware.tile={TILES.get(algo, 5)}"]
    other = ["micro_batch=3", "sample_batch=2", "hardware.threads=2"]
    found = ran(
        [
            attempt("one", *words, processes=1),
            attempt("other", *words, *other, processes=1),
            attempt("ddp", *words, "hardware=ddp"),
            attempt("lora", *words, LORA, processes=1),
            attempt("sharded", *words, "hardware=fsdp2"),
            attempt("sharded_lora", *words, LORA, "hardware=fsdp2"),
        ]
    )
    assert {code for each in found for code in each["codes"]} == {0}, found
    expected = traces(tmp_path / "one")
    assert traces(tmp_path / "other") == expected
    assert traces(tmp_path / "ddp") == expected
    for one, sharded in (("one", "sharded"), ("lora", "sharded_lora")):
        ours, theirs = traces(tmp_path / one), traces(tmp_path / sharded)
        named = [key for key in ours if not key.startswith("step_")]
        assert {k: ours[k] for k in named} == {k: theirs[k] for k in named}, sharded
        whole = weights(tmp_path / sharded)
        for key, tensor in weights(tmp_path / one).items():
            assert torch.equal(whole[key], tensor), (sharded, key)


def test_a_layout_of_shards_is_verified(ran: Ran) -> None:
    words = [*WORDS["grpo"], "iterations=1", "hardware.tile=5"]
    shards = ["hardware=fsdp2", "hardware.device=cpu", "hardware.processes=2"]
    verify = {"words": ["verify", "one", "--layout", *shards], "processes": 1, "grace": 30}
    _, done = ran([attempt("one", *words, processes=1), verify])
    assert done["codes"] == [0], done
    # nothing of what the processes print
    assert done["out"].splitlines() == [
        "making iterations 1 to 1 again",
        "verified: iterations 1 to 1 give the same bits again (metrics, evaluations, weights)",
    ]


def test_three_processes_divide_a_network(ran: Ran, tmp_path: Path) -> None:
    # at 32 pixels a gradient of rounding errors moves a weight by more than 1e-6
    words = [
        *WORDS["nft"],
        "shares=even",
        "prompts_per_iteration=3",
        "iterations=1",
        "model.size=64",
    ]
    three = attempt("three", *words, "hardware=fsdp2", "hardware.processes=3")
    found = ran([attempt("one", *words, processes=1), three | {"processes": 3}])
    assert [code for each in found for code in each["codes"]] == [0] * 4, found
    assert_same_experiment(tmp_path / "one", tmp_path / "three")


@pytest.mark.parametrize("hardware", [pytest.param("ddp", marks=pytest.mark.whole), "fsdp2"])
def test_a_signal_to_one_ends_all_and_they_go_on_exactly(
    hardware: str, ran: Ran, tmp_path: Path, traces: Traces
) -> None:
    words = [*WORDS["nft"], *LENGTH, f"hardware={hardware}"]
    stop = attempt("stopped", *words)
    stop["env"] = {"1": {"RLFACTORY_FAULT": "between_updates:term:7"}}
    found = ran([attempt("whole", *words), stop, attempt("stopped", *words)])
    assert [each["codes"] for each in found] == [[0, 0], [143, 143], [0, 0]], found
    assert "Preempted" in found[1]["said"]
    assert "resuming after iteration 1" in found[2]["said"]
    assert traces_without(traces(tmp_path / "stopped"), "step_000001") == traces(tmp_path / "whole")


def traces_without(found: dict[str, Any], name: str) -> dict[str, Any]:
    """But for the checkpoint that was made because it was stopped."""
    return {key: value for key, value in found.items() if not key.startswith(name)}


def test_from_two_to_one_and_back(ran: Ran, tmp_path: Path) -> None:
    words = [*WORDS["nft"], "iterations=3"]

    def part(until: int, hardware: str, processes: int) -> dict[str, Any]:
        kept = "checkpoint.every=1"
        begun = attempt("run", *words, f"hardware={hardware}", kept, processes=processes)
        stops = {"RLFACTORY_FAULT": f"sampling:term:{until}"} if until else {}
        begun["env"] = {"0": stops}
        return begun | {"words": [*begun["words"], "--force"]}

    found = ran(
        [
            attempt("one", *words, processes=1),
            part(2, "fsdp2", 2),
            part(3, "ddp", 1),
            part(0, "fsdp2", 2),
            {"words": ["sample", "run", "--prompt", "a red circle"], "processes": 1},
            {"words": ["export", "run", "--to", "out"], "processes": 1},
        ]
    )
    codes = [[0], [143, 143], [143], [0, 0], [0], [0]]
    assert [each["codes"] for each in found] == codes, found
    assert (tmp_path / "run" / "samples" / "drawn_001" / "000.png").is_file()
    assert (tmp_path / "out" / "README.md").is_file()
    assert_same_experiment(tmp_path / "one", tmp_path / "run")
