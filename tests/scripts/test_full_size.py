"""The pieces of the full-size bench, on models that are small."""

import importlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

BENCH = Path(__file__).parents[2] / "scripts" / "bench"
SMALL = {
    "transformer": {
        "num_layers": 2,
        "num_attention_heads": 2,
        "attention_head_dim": 8,
        "caption_projection_dim": 16,
        "joint_attention_dim": 32,
        "pooled_projection_dim": 16,
        "dual_attention_layers": [0],
    },
    "vae": {"block_out_channels": [8] * 4, "norm_num_groups": 2, "layers_per_block": 1},
}
SHORT = ["hardware=cpu", "model.size=64", "schedule.steps=3", "sample_batch=4"]


@pytest.fixture(scope="module")
def full_size() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCH))
    yield importlib.import_module("full_size")
    sys.path.remove(str(BENCH))


def test_flops_are_those_of_the_products(full_size: ModuleType) -> None:
    short = {"transformer": {"num_layers": 1, "num_single_layers": 1}}
    longer = {"transformer": {"num_layers": 1, "num_single_layers": 2}}
    found, more = full_size.flops("flux_dev", short), full_size.flops("flux_dev", longer)
    tokens, width, rank = 1024 + 512, 3072, 32
    # q, k, v (adapted), an MLP of 4, and what brings 5 to 1; keys and values for each token
    products = 2 * tokens * (12 * width**2 + 3 * 2 * rank * width)
    attention = 4 * tokens**2 * width
    modulation = 2 * 3 * width**2
    assert more.forward - found.forward == pytest.approx(products + attention + modulation, 0.001)
    # frozen matrices have a gradient of their inputs alone
    assert 1.9 < (more.learning - found.learning) / (more.forward - found.forward) < 2.3


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["grpo", "awm", "nft"])
def test_an_iteration_is_measured(full_size: ModuleType, algorithm: str) -> None:
    config = full_size.configured("sd35_medium", algorithm, None, SHORT)
    exact = {f"precision.{when}": "float32" for when in ("weights", "rollout", "learning")}
    config = full_size.with_values(config, exact)
    of_item = full_size.Flops(10.0, 30.0)
    found = full_size.bench("sd35_medium", config, torch.device("cpu"), of_item, SMALL)
    assert all(math.isfinite(x) and x > 0 for x in vars(found).values() if x != found.first_ratio)
    assert found.first_ratio < 1e-4
    each_item = full_size.nfe.items_per_sample(config, full_size.traits_of(config))
    compared = {"grpo": 0, "awm": each_item, "nft": each_item}[algorithm]
    learned = each_item
    each = 10 * compared + 30 * learned
    assert found.flops == pytest.approx(each * found.learned)


def test_weights_are_drawn_where_they_are_needed(full_size: ModuleType) -> None:
    from published import pipeline

    pipe = pipeline("sd35_medium", torch.device("cpu"), torch.bfloat16, **SMALL)
    tensors = [*pipe.transformer.parameters(), *pipe.vae.parameters()]
    assert all(torch.isfinite(t).all() and not t.requires_grad for t in tensors)
    matrices = [t for t in tensors if t.ndim > 1]
    assert all(0 < t.float().std() < 0.5 for t in matrices)
    assert {t.dtype for t in pipe.transformer.parameters()} == {torch.bfloat16}
    assert {t.dtype for t in pipe.vae.parameters()} == {torch.float32}
    assert pipe.text_encoder is None


def test_a_device_is_known_by_its_name(full_size: ModuleType) -> None:
    assert full_size.peak_flops("NVIDIA H100 80GB HBM3") == 989e12
    assert full_size.peak_flops("NVIDIA A100-SXM4-80GB") == 312e12
    assert full_size.peak_flops("NVIDIA L40S") == 362e12
    assert full_size.peak_flops("NVIDIA GH200 480GB") == 989e12
    assert full_size.peak_flops("a toaster") is None


def test_words_are_those_of_a_user(full_size: ModuleType) -> None:
    typed = full_size.words("flux_dev", "nft", None, ["micro_batch=1"])
    assert typed[:2] == ["model=flux", "algo=nft"]
    assert typed[-1] == "micro_batch=1"
    config = full_size.configured("flux_dev", "nft", None, ["micro_batch=1"])
    assert config["precision"]["weights"] == "bfloat16"
    assert full_size.foreseen(config)["weights"] > 20 * full_size.GIB


def test_a_table_is_shown_line_by_line(
    full_size: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    full_size.show(iter([["a", "b"], ["1", "2"]]))
    assert capsys.readouterr().out == "| a | b |\n| --- | ---: |\n| 1 | 2 |\n\n"


def test_an_iteration_is_foreseen_for_each_algorithm(full_size: ModuleType) -> None:
    _, *rows = full_size.iterations(["sd35_medium", "flux_dev"], ["grpo", "nft"], [])
    assert [row[:2] for row in rows] == [
        [name, algorithm] for name in ("sd35_medium", "flux_dev") for algorithm in ("grpo", "nft")
    ]
    assert rows[1][2] == "10 + 4 + 4"
    # what the issue asks for: FLUX below 48 GB with the options on, SD3.5 Medium below 24
    assert max(float(row[5]) for row in rows[:2]) < 24 / 1.074
    assert max(float(row[5]) for row in rows[2:]) < 48 / 1.074
    assert max(float(row[3]) for row in rows) < 80 / 1.074
