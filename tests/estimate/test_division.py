"""The memory of one process of several, by what each of them has."""

import pytest

from rlfactory.estimate.advice import told
from rlfactory.estimate.division import Division, blocks, division_of
from rlfactory.estimate.exhausted import traits_of
from rlfactory.estimate.folder import parts_of
from rlfactory.estimate.memory import Estimate, estimate
from rlfactory.request import compose_request

FLUX = 11_901_408_320
FULL = ["model=flux", "model.finetune=full", "hardware.device=cuda", "hardware.memory_gb=80"]
EIGHT = ["hardware.processes=8", "prompts_per_iteration=48"]


def of(*words: str) -> Estimate:
    config = compose_request([*FULL, *words]).values
    found = estimate(config, traits_of(config))
    assert found is not None
    return found


def test_one_process_has_all() -> None:
    config = compose_request([]).values
    assert division_of(config) == Division()
    assert Division().whole(FLUX) == 0
    assert of("hardware=ddp").resident == of("hardware=gpu").resident


def test_a_whole_network_leaves_the_samples_to_divide() -> None:
    one, eight = of("hardware=ddp", EIGHT[1]), of("hardware=ddp", *EIGHT)
    assert eight.resident == one.resident
    waiting = (one.phases["updating"] - 8 * FLUX, eight.phases["updating"] - 8 * FLUX)
    assert waiting[0] == pytest.approx(8 * waiting[1])


def test_a_divided_network_is_whole_while_it_samples() -> None:
    one, eight = of("hardware=fsdp2", EIGHT[1]), of("hardware=fsdp2", *EIGHT)
    for name in ("weights", "Adam's moments", "weight sets"):
        assert eight.resident[name] == one.resident[name] / 8
    assert eight.resident["text encoders"] == one.resident["text encoders"]
    more = eight.phases["sampling"] - (one.phases["sampling"] - 7 / 8 * samples(one))
    assert more == pytest.approx(4 * FLUX * 7 / 8)


def samples(found: Estimate) -> float:
    return found.phases["updating"] - 8 * FLUX


def test_learning_has_three_blocks_whole_and_all_where_others_predict() -> None:
    """57 blocks of FLUX; DiffusionNFT asks the old policy in each micro-batch."""
    grpo, nft = (
        [of(f"algo={name}", "regularizer=none", "hardware=fsdp2", *more) for more in ([], EIGHT)]
        for name in ("grpo", "nft")
    )
    gradient = 4 * FLUX * 7 / 8
    for (one, eight), share in ((grpo, 3 / 57), (nft, 1.0)):
        waits = eight.phases["updating"] - one.phases["updating"] + 2 * gradient
        found = eight.phases["learning"] - one.phases["learning"] - waits + gradient
        assert found == pytest.approx(4 * FLUX * 7 / 8 * share)


@pytest.mark.parametrize(
    ("stage", "gradient", "weights"), [(1, 1, 1), (2, 1 / 8, 1), (3, 1 / 8, 1 / 8)]
)
def test_zero_divides_stage_by_stage(stage: int, gradient: float, weights: float) -> None:
    one, eight = (of("hardware=deepspeed", f"hardware.zero={stage}", *m) for m in ([], EIGHT))
    assert eight.resident["Adam's moments"] == FLUX
    assert eight.resident["the optimiser's weights"] == FLUX / 2
    assert eight.resident["weights"] == 4 * FLUX * weights
    fewer = of("hardware=deepspeed", f"hardware.zero={stage}", EIGHT[1])
    waits = 7 / 8 * samples(fewer)
    saved = fewer.phases["updating"] - waits - eight.phases["updating"]
    assert saved == pytest.approx(8 * FLUX * (1 - gradient))
    assert one.resident["the optimiser's weights"] == 4 * FLUX
    away = of("hardware=deepspeed", "hardware.offload=cpu", *EIGHT)
    assert away.resident["Adam's moments"] == away.resident["the optimiser's weights"] == 0


def test_blocks_are_those_of_the_network() -> None:
    for path, name, count in (
        ("black-forest-labs/FLUX.1-dev", "transformer", 19 + 38),
        ("stabilityai/stable-diffusion-3.5-medium", "transformer", 24),
        ("stable-diffusion-v1-5/stable-diffusion-v1-5", "unet", 8),
    ):
        parts = parts_of(path)
        assert parts is not None
        assert blocks(parts[name].config) == count


def test_the_plan_says_that_each_process_takes_it() -> None:
    config = compose_request([*FULL, "hardware=ddp", *EIGHT]).values
    assert told(config, of("hardware=ddp", *EIGHT)).startswith("in each process about ")
    assert told(config | {"hardware": {"processes": 1}}, of()).startswith("about ")
