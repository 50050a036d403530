"""Replays in half precision when learning adds up its matrix products in another order.

A GPU chooses kernels by the shape of a batch, so that a batch of another size rounds otherwise. On
a CPU that is emulated: while learning, each matrix product and convolution is the sum of two
halves. Both are computed in float32 and rounded once, as tensor cores do.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from rlfactory.config.overrides import plan_from_words
from rlfactory.hardware.local import Local
from rlfactory.model.precision import Precision
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import NoProgress
from rlfactory.train.trainer import Trainer
from rlfactory.utils.errors import TrainingError

SMALL = [
    "hardware=cpu",
    "hardware.threads=1",
    "scoring.background=none",
    "iterations=1",
    "prompts_per_iteration=2",
    "group_size=4",
    "updates_per_iteration=2",
    "sample_batch=4",
    "schedule.steps=4",
    "model.size=32",
]
SD3 = "window=fixed window.steps=[0,1,2] micro_batch=5"
CASES = {
    "grpo": f"algo=grpo {SD3}",
    "guidance": f"algo=grpo {SD3} model.guidance=4.5",
    "all steps": "algo=grpo window=all micro_batch=5",
    "step fraction": "algo=grpo window=all algo.step_fraction=0.7 micro_batch=5",
    "branches at steps": (
        f"algo=grpo {SD3} branch_at=step branches=2 group_size=6 updates_per_iteration=1"
    ),
    "two epochs": f"algo=grpo {SD3} epochs=2",
    "grpo_guard": f"algo=grpo_guard {SD3}",
    "flow_dppo": f"algo=flow_dppo {SD3}",
    "dance_sde": "algo=grpo dynamics=dance_sde window=all micro_batch=5",
    "cps": "algo=grpo dynamics=cps window=all micro_batch=5",
    "ddpo": "model=tiny_sd algo=ddpo window.size=4 micro_batch=5",
    "ddpo_sf": "model=tiny_sd algo=ddpo_sf window.size=4 micro_batch=5 updates_per_iteration=1",
}


@pytest.fixture
def reordered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums in two halves in autocast passes outside of `Precision.sampling`."""
    is_sampling = [False]
    sampling, linear, conv2d = Precision.sampling, F.linear, F.conv2d

    @contextmanager
    def note_sampling(self: Precision) -> Iterator[None]:
        is_sampling[0] = True
        try:
            with sampling(self):
                yield
        finally:
            is_sampling[0] = False

    def in_two_halves(
        product: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor, dim: int
    ) -> Tensor:
        dtype = torch.get_autocast_dtype("cpu")
        # rounded to half precision as autocast does, then exact in float32
        x, weight = x.to(dtype).float(), weight.to(dtype).float()
        size = x.shape[dim]
        if is_sampling[0] or size == 1:
            return product(x, weight)
        pairs = zip(x.split(size // 2, dim), weight.split(size // 2, 1), strict=True)
        first, *others = [product(a, b) for a, b in pairs]
        return sum(others, start=first)

    def half_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if not torch.is_autocast_enabled("cpu"):
            return linear(x, weight, bias)
        with torch.autocast("cpu", enabled=False):
            y = in_two_halves(linear, x, weight, -1)
            y = y if bias is None else y + bias.float()
        return y.to(torch.get_autocast_dtype("cpu"))

    def half_conv2d(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: object = 1,
        padding: object = 0,
        dilation: object = 1,
        groups: int = 1,
    ) -> Tensor:
        options = (stride, padding, dilation)
        if not torch.is_autocast_enabled("cpu") or groups != 1:
            return conv2d(x, weight, bias, *options, groups)
        with torch.autocast("cpu", enabled=False):
            y = in_two_halves(lambda a, b: conv2d(a, b, None, *options), x, weight, 1)
            y = y if bias is None else y + bias.float()[:, None, None]
        return y.to(torch.get_autocast_dtype("cpu"))

    def keep_weights(self: Local, optimizer: torch.optim.Optimizer, *_: object) -> float:
        optimizer.zero_grad()
        return 1.0

    # so that the ratios of the second update are 1 as well
    monkeypatch.setattr(Local, "step", keep_weights)
    monkeypatch.setattr(Precision, "sampling", note_sampling)
    monkeypatch.setattr(F, "linear", half_linear)
    monkeypatch.setattr(F, "conv2d", half_conv2d)


def run(words: str) -> dict[str, float]:
    """The metrics of an iteration."""
    config = plan_from_words(
        *{w.partition("=")[0]: w for w in [*SMALL, *words.split()]}.values()
    ).config
    found: dict[str, float] = {}
    trainer = Trainer(build(config), training_budget(config), NoProgress())
    trainer.run(lambda _, metrics, __: found.update(metrics))
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("reordered")
@pytest.mark.parametrize(
    ("case", "precision"),
    [
        pytest.param(case, precision, marks=() if precision == of_case else pytest.mark.whole)
        for case, of_case in zip(CASES, itertools.cycle(("bf16", "fp16")), strict=False)
        for precision in ("bf16", "fp16")
    ],
)
def test_ratios_begin_at_one(case: str, precision: str) -> None:
    metrics = run(f"{CASES[case]} precision={precision}")
    assert metrics["ratio/first_max_dev"] < 1e-7
    # of the second update too; the micro-batches of a second epoch hold other samples
    assert metrics["ratio/max_dev"] < (1e-5 if case == "two epochs" else 1e-7)
    assert metrics["ratio/sampled_max_dev"] > 1e-6  # what the run would have compared


@pytest.mark.slow
@pytest.mark.usefixtures("reordered")
@pytest.mark.parametrize("case", ["all steps", "grpo_guard", "ddpo"])
def test_sampled_log_probabilities_would_be_refused(case: str) -> None:
    with pytest.raises(TrainingError, match="algo.old_log_probs=recomputed"):
        run(f"{CASES[case]} precision=bf16 algo.old_log_probs=sampled")


@pytest.mark.slow
@pytest.mark.usefixtures("reordered")
@pytest.mark.parametrize("case", ["grpo", "grpo_guard", "ddpo"])
def test_a_half_precision_rollout_is_learned_from_in_float32(case: str) -> None:
    metrics = run(f"{CASES[case]} precision=bf16_rollout")
    assert metrics["ratio/max_dev"] < 1e-6
    assert metrics["ratio/sampled_max_dev"] > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "recomputes"),
    [
        ("precision=bf16 micro_batch=4", False),  # 12 items an update, drawn 4 at a time
        ("precision=bf16 micro_batch=5", True),
        ("precision=bf16 micro_batch=6 sample_batch=6", True),  # 6 and 2 samples were drawn
        ("precision=fp32 micro_batch=5", False),
        ("precision=fp32 micro_batch=5 algo.old_log_probs=recomputed", True),
    ],
)
def test_log_probabilities_are_recomputed_where_batches_differ(
    words: str, recomputes: bool
) -> None:
    metrics = run(f"{CASES['grpo']} {words}")
    assert ("ratio/sampled_max_dev" in metrics) == recomputes
    compared = metrics["nfe/compare"]
    assert compared == (1.5 if recomputes else 0)  # of 3 items a sample, those of update 2
