"""A network sharded over ranks: the same training as in one process, and what it costs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tiny_pipelines import *  # noqa: F403  (its fixtures)
from tiny_pipelines import EDITING, FOLDERS
from warm_process import Warm

pytestmark = [pytest.mark.dist, pytest.mark.timeout(600)]

Trained = Callable[..., dict[str, dict[str, Any]]]

# at Adam's usual eps the rounding errors of gradients that should be 0 are steps of the size of lr
SMALL = ["iterations=2", "evaluation.prompts=2", "optimizer.eps=1e-5", "group_size=2"]
IMAGES = [
    *(*SMALL, "model.size=32", "schedule.steps=3"),
    *("prompts_per_iteration=4", "sample_batch=3", "micro_batch=2"),
]
FULL = ["model.finetune=full", *IMAGES]
NFT = ["algo=nft", "regularizer=kl_v", *IMAGES]
TEXTS = [
    *("model=tiny_gpt2", "prompts_per_iteration=4", *SMALL, "optimizer.eps=1e-3"),
    *("sample_batch=3", "dynamics.length=6", "dynamics.top_k=32"),
]
LORA = "model.finetune=lora"


@pytest.fixture
def trained(warm: Warm, tmp_path: Path) -> Trained:
    """What trainings counted, by name: each is its words, in two processes unless it says more."""

    def run(**attempts: Any) -> dict[str, dict[str, Any]]:
        asked = []
        for name, words in attempts.items():
            count = next((int(w.split("=")[1]) for w in words if "processes=" in w), 1)
            device = ["hardware.device=cpu", "hardware.timeout=120"] if count > 1 else []
            asked.append({"name": name, "words": [*words, *device], "processes": count})
        found = warm(tmp_path, asked)
        said = warm.errors.read_text()
        assert [set(each["codes"]) for each in found] == [{0}] * len(asked), said
        return dict(zip(attempts, found, strict=True))

    return run


def fsdp2(*words: str, processes: int = 2) -> list[str]:
    return ["hardware=fsdp2", f"hardware.processes={processes}", *words]


def one(*words: str) -> list[str]:
    return ["hardware=cpu", *words]


def distance(a: Path, b: Path) -> float:
    """The largest difference between the weights that two trainings ended with."""
    ours, theirs = load_file(a), load_file(b)
    assert ours.keys() == theirs.keys()
    return max(float((ours[key] - theirs[key]).abs().max()) for key in ours)


def moved(path: Path) -> float:
    """How far a training has moved from its initial weights at most, by its `old` or `ema` set."""
    state = load_file(path)
    pairs = [(k, f"ema/{k.split('/', 1)[1]}") for k in state if k.startswith("policy/")]
    return max(float((state[a] - state[b]).abs().max()) for a, b in pairs if b in state)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([*NFT, LORA], id="images"),
        pytest.param([*TEXTS, LORA], id="texts", marks=pytest.mark.whole),
    ],
)
def test_adapters_on_a_sharded_network_learn_as_in_one_process(
    words: list[str], trained: Trained, tmp_path: Path
) -> None:
    found = trained(one=one(*words), sharded=fsdp2(*words))
    assert distance(tmp_path / "one.safetensors", tmp_path / "sharded.safetensors") < 1e-6
    assert moved(tmp_path / "one.safetensors") > 1e-5
    counted = found["sharded"]
    assert counted["bytes"]["learn gather"] > 0, "the network is sharded"
    assert "learn reduce" not in counted["bytes"], "adapters are in full in each process"
    assert counted["moments"] == ["Tensor"]
    main, other = counted["loaded"]
    assert main == counted["parameters"]
    assert other < main / 5, "adapters alone: the frozen network comes from rank 0"


def test_all_ways_of_sharding_learn_as_one_process(trained: Trained, tmp_path: Path) -> None:
    words = [*NFT, "model.finetune=full", "micro_batch=4"]
    found = trained(
        one=one(*words),
        two=fsdp2(*words),
        offloaded=fsdp2(*words, "hardware.offload=true"),
        deferred=fsdp2(*words, "hardware.defer_reduce=true"),
        copies=fsdp2(*words, "hardware.shard_size=2", processes=4),
    )
    places = {name: tmp_path / f"{name}.safetensors" for name in found}
    assert moved(places["one"]) > 1e-5
    for name in ("two", "offloaded", "deferred", "copies"):
        assert distance(places["one"], places[name]) < 1e-6, name
        assert found[name]["moments"] == ["DTensor"], name
        norms = [[m["grad/norm"] for m in found[run]["metrics"]] for run in ("one", name)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-4), name
    assert distance(places["two"], places["offloaded"]) == 0
    assert found["two"]["loaded"] == [found["two"]["parameters"], 0], "rank 0 alone has read it"
    # once an update in the place of once a micro-batch
    reduced = {name: found[name]["bytes"]["learn reduce"] for name in ("two", "deferred")}
    assert reduced["two"] > 1.9 * reduced["deferred"]


@pytest.mark.whole  # tests/device/test_sharding.py counts the same with less
def test_a_micro_batch_gathers_for_its_passes_alone(trained: Trained) -> None:
    # one update: with more, ranks have parts of other sizes, and make passes for each other
    full = [*FULL, "regularizer=none", "updates_per_iteration=1"]
    found = trained(
        grpo=fsdp2("algo=grpo", *full),
        nft=fsdp2("algo=nft", *full),
        half=fsdp2("algo=grpo", *full, "precision=bf16", "algo.old_log_probs=sampled"),
    )
    size = 4 * found["grpo"]["parameters"]

    def networks(name: str, kind: str) -> float:
        counted = found[name]
        each = counted["micro_batches"] if kind.startswith("learn") else 1
        return float(counted["bytes"][kind]) / size / each

    # forward and backward; the modules outside of blocks stay for the backward pass
    assert 1.5 < networks("grpo", "learn gather") <= 2.05
    assert networks("nft", "learn gather") <= networks("grpo", "learn gather") + 1.05
    assert networks("half", "learn gather") == pytest.approx(networks("grpo", "learn gather") / 2)
    # a rollout in each of two iterations
    assert networks("grpo", "other gather") <= 2.1
    assert networks("half", "other gather") == pytest.approx(networks("grpo", "other gather") / 2)
    # sums stay float32
    assert networks("half", "learn reduce") == pytest.approx(networks("grpo", "learn reduce"))
    assert not [w for each in found.values() for w in each["warnings"] if "view tensor" in w]


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp16", marks=pytest.mark.whole)])
def test_half_precision_differs_from_ddp_by_rounding_alone(
    precision: str, trained: Trained
) -> None:
    # a reward in small steps: of few right shapes, rounding decided whether there was a gradient
    words = ["algo=grpo", "reward=compressibility", *FULL, f"precision={precision}"]
    words += ["updates_per_iteration=1"]
    found = trained(ddp=["hardware=ddp", "hardware.processes=2", *words], sharded=fsdp2(*words))
    ddp, sharded = (found[name]["metrics"] for name in ("ddp", "sharded"))
    # the samples differ by rounding too, and so by some percent their advantages
    assert sharded[0]["grad/norm"] == pytest.approx(ddp[0]["grad/norm"], rel=0.1)
    assert sharded[0]["ratio/first_max_dev"] <= 1e-5


SHARDED = ("sdxl", "qwen_image")
"""A UNet and a transformer; `--whole` shards every family."""


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(name, marks=() if name in SHARDED else pytest.mark.whole)
        for name in FOLDERS
        if name != "z_image_turbo"
    ],
)
def test_every_family_trains_sharded_as_in_one_process(
    model: str, small: Callable[[str], list[str]], trained: Trained, tmp_path: Path
) -> None:
    # a score that a last bit of an image changes by little
    function = tmp_path / "rewards.py"
    function.write_text(
        "def red(images, *_): return images[..., 0, :, :].float().flatten(1).mean(1)"
    )
    words = [f"model={model}", *NFT, LORA, *small(model), "reward=image_function"]
    words += [f"reward.function={function}:red", "precision=fp32", "memory=roomy"]
    words += [f"prompts={'edits' if model in EDITING else 'shapes'}", "distilled_to=null"]
    # steps in proportion to gradients
    words += ["recipe=none", "optimizer.eps=0.01", "optimizer.lr=0.1"]
    found = trained(alone=one(*words), sharded=fsdp2(*words))
    assert found["sharded"]["bytes"]["learn gather"] > 0
    alone, sharded = (tmp_path / f"{name}.safetensors" for name in ("alone", "sharded"))
    assert moved(alone) > 0
    # a pixel that is rounded to another level changes its sample's advantage by about 1 %
    assert distance(alone, sharded) < 0.03 * moved(alone)
