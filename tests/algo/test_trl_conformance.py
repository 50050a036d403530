"""Losses and gradients are those of TRL: of 1.16's GRPO, RLOO and DPO, 1.12's PPO, GSPO-token;
and those of verl and UniRL.

The recordings are made by `scripts/conformance`; `docs/reference/trl_conformance.md` says what of
TRL differs, and why.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from rlfactory.algo.advantage.formulas import group_advantages
from rlfactory.algo.dpo import DPO
from rlfactory.algo.ppo import PPO
from rlfactory.dynamics.token import Token
from rlfactory.regularizer.coefficient import Fixed
from rlfactory.regularizer.kl_token import KLToken
from rlfactory.rollout import Rollout, Tokens

DATA = Path(__file__).parents[1] / "data" / "trl"
TOLERANCE = 1e-6
"""Of the loss, and of the gradient's largest element."""
ROUNDED = 2e-6
"""The same where float32 rounds more: TRL's own PPO is up to 7e-7 off its values in float64."""
NO_CRITIC: dict[str, Any] = {"baseline": "group", "value_weight": 0.0, "normalize": "none"}
GSPO = {"ratio": "sequence", "clip_range": 0.1, "clip_high": 0.15}
VESPO = {"surrogate": "vespo", "ratio": "product"}
GMPO = {"surrogate": "gmpo", "ratio": "sequence", "aggregation": "sequence"}
KL = {"kl": "none"}
CORRECTED = {"kl": "ratio"}
GRPO: dict[str, dict[str, Any]] = {
    "grpo": {"aggregation": "sequence"},
    "grpo, first update": {"aggregation": "sequence"},
    "grpo, kl": {"aggregation": "sequence", **KL},
    "grpo, corrected kl": {"aggregation": "sequence", **CORRECTED},
    "grpo, masked": {"aggregation": "sequence", "mask_truncated": True},
    "bnpo": {},
    "bnpo, masked": {"mask_truncated": True, **KL},
    "dr_grpo": {"aggregation": "constant"},
    "dr_grpo, corrected kl": {"aggregation": "constant", **CORRECTED},
    "dapo": {"clip_high": 0.28},
    "dapo, masked": {"mask_truncated": True},
    "dapo, delta": {"clip_high": 0.28, "dual_clip": 1.5},
    "dapo, entropy": {"entropy_weight": 0.01},
    "gspo": {"aggregation": "sequence", **GSPO},
    "gspo, corrected kl": {"aggregation": "sequence", **GSPO, **CORRECTED},
    "gspo, tokens": {**GSPO},
    "luspo": {"aggregation": "sum", **GSPO},
    # TRL's epsilon_high is the bound itself
    "cispo": {"surrogate": "cispo", "clip_range": 1.0, "clip_high": 4.0},
    "cispo, kl": {"surrogate": "cispo", "clip_range": 1.0, "clip_high": 0.5, **KL},
    "sapo": {"surrogate": "sapo", "aggregation": "sequence"},
    "rloo": {"ratio": "product", "aggregation": "sequence"},
    "vespo": {**VESPO},
    "vespo, soft": {**VESPO, "power_positive": 1.0, "decay_negative": 0.5},
    "gmpo": {**GMPO, "clip_range": 0.4},
    "gmpo, narrow": {**GMPO, "clip_range": 0.1, "clip_high": 0.2},
}
"""Our options for TRL's."""
GSPO_TOKEN = {
    "gspo_token": {"aggregation": "sequence", **GSPO, "ratio": "sequence_token"},
    "gspo_token, tokens": {**GSPO, "ratio": "sequence_token"},
}
DPPO = {"surrogate": "dppo", "clip_range": 0.05}
KL_LIMIT = {**DPPO, "divergence": "kl", "ratio_cap": 20.0}
PEERS: dict[str, dict[str, Any]] = {
    "verl, dppo_tv": {**DPPO, "ratio_cap": 20.0},
    "verl, dppo_tv, cap": {**DPPO, "ratio_cap": 1.2},
    "verl, dppo_kl": {**KL_LIMIT, "clip_range": 0.01},
    "verl, dppo_kl, two limits": {**KL_LIMIT, "clip_range": 0.005, "clip_high": 0.02},
    "verl, geo_mean": {**GMPO, "clip_range": 0.1},
    "unirl, dppo": {**DPPO},
    "unirl, cppo": {"surrogate": "cppo", "clip_range": 0.1},
    "unirl, cppo, steep": {
        **{"surrogate": "cppo", "clip_range": 0.05, "last_weight": 0.2, "prefix_budget": 0.001}
    },
    "unirl, drpo": {"surrogate": "drpo", "clip_range": 0.15},
    "unirl, drpo, published": {"surrogate": "drpo", "clip_range": 12.5},
    "unirl, spo": {"surrogate": "spo", "clip_range": 0.3},
}
DPO_CASES = ("sigmoid", "sigmoid, beta", "ipo", "hinge", "robust")
PPO_CASES = ("k3", "whitened rewards", "missing end", "discounted", "narrow clips")
BATCHES, WIDTH = 10, 6


class Recording:
    """The batches of a case."""

    def __init__(self, file: str, case: str) -> None:
        with safe_open(DATA / f"{file}.safetensors", "pt") as opened:
            metadata = opened.metadata()
            self.version, self.longest = metadata["version"], int(metadata["longest"])
            self.options: dict[str, Any] = json.loads(metadata["cases"])[case]
            names = [name for name in opened.keys() if name.startswith(f"{case}/")]  # noqa: SIM118
            found = {name: opened.get_tensor(name) for name in names}
        count = len({name.split("/")[1] for name in names})
        self.batches = [
            {n.split("/")[2]: found[n] for n in names if n.split("/")[1] == str(i)}
            for i in range(count)
        ]


class TableModel:
    """A language model whose logits and values are tables; a prompt is the number of its row."""

    def __init__(self, logits: Tensor, value: Tensor, reference: Tensor | None = None) -> None:
        self.logits, self.value = logits.requires_grad_(), value.requires_grad_()
        self.reference = reference

    @contextmanager
    def weights(self, name: str) -> Iterator[None]:
        """With the reference's logits in use."""
        assert name == "reference"
        assert self.reference is not None
        self.logits, own = self.reference, self.logits
        yield
        self.logits = own

    def rows_at_once(self, tokens: int, most: int) -> int:
        return most

    def logits_at_once(self, count: int) -> int:
        return count

    def measure(
        self, tokens: Tokens, work: Any, *columns: Tensor, value_tokens: Tokens | None = None
    ) -> tuple[Any, Tensor, None]:
        valued, rows = value_tokens or tokens, tokens.prompt[:, 0]
        logits = tokens.real(self.logits[rows, : tokens.mask.shape[1]])
        values = valued.real(self.value[rows, : valued.mask.shape[1]])
        return work(logits, *columns), values, None


def rollout_of(batch: dict[str, Tensor], dynamics: Token) -> tuple[TableModel, Rollout]:
    """A recorded batch as a rollout, and the model that it is trained with."""
    response, mask = batch["response"].long(), batch["mask"]
    zeros = torch.zeros(mask.shape)

    def log_prob(name: str) -> Tensor:
        step = dynamics.step(batch[name], next=response)
        return step.log_prob.masked_fill(~mask, 0.0)

    count = len(mask)
    rows = torch.arange(count)
    tokens = Tokens(
        prompt=rows[:, None],
        prompt_mask=torch.ones(count, 1, dtype=torch.bool),
        response=response,
        mask=mask,
        ended=batch["ended"],
        log_prob=log_prob("old_logits"),
        value=batch.get("old_value", zeros),
        reference_log_prob=log_prob("reference_logits"),
    )
    model = TableModel(batch["logits"].clone(), batch.get("value", zeros).clone())
    texts = [""] * count
    return model, Rollout(texts, [{}] * count, groups=rows, index=rows, tokens=tokens)


def loss_and_gradients(
    algo: PPO | DPO, model: TableModel, samples: Rollout, kl: KLToken | None, size: int
) -> tuple[float, Tensor, Tensor]:
    """The loss of an update in micro-batches of `size`, and its gradients by logits and values."""
    items: Any = algo.training_items(
        algo.normalise_update(samples),
        model,  # type: ignore[arg-type]
        seed=0,
        iteration=0,
    )
    total = torch.zeros(())
    for part in items.split(size):
        loss = algo.loss(model, part)  # type: ignore[arg-type]
        value = loss.value
        if kl is not None:
            value = value + kl.penalty(model, part, loss.outputs)[0]  # type: ignore[arg-type]
        total = total + value * (part.weight / items.weight)
    gradients = torch.autograd.grad(total, [model.logits, model.value], materialize_grads=True)
    return total.item(), *gradients


def assert_equal(
    found: float | Tensor, expected: Tensor, scale: float = 0.0, tolerance: float = TOLERANCE
) -> None:
    """Equal within `tolerance` of the largest element, or of `scale`."""
    largest = max(expected.abs().max().item(), scale)
    difference = (torch.as_tensor(found) - expected).abs().max().item()
    assert difference <= tolerance * largest, f"{difference / largest:.1e}"


@pytest.mark.parametrize("size", [4, 1])
@pytest.mark.parametrize("case", [*GRPO, *GSPO_TOKEN, *PEERS])
def test_losses_without_a_critic_are_theirs(case: str, size: int) -> None:
    files = {"grpo": GRPO, "ppo": GSPO_TOKEN, "peers": PEERS}
    file, cases = next((file, cases) for file, cases in files.items() if case in cases)
    recording, options = Recording(file, case), dict(cases[case])
    weighting = options.pop("kl", None)
    dynamics = Token(length=recording.longest)
    kl = weighting and KLToken(
        dynamics, coefficient=Fixed(value=0.04), estimator="k3", weighting=weighting
    )
    assert len(recording.batches) == BATCHES
    for batch in recording.batches:
        model, samples = rollout_of(batch, dynamics)
        mask = batch["mask"]
        advantage = batch["advantage"][:, None] * mask
        samples = replace(samples, advantage=advantage, returns=torch.zeros(mask.shape))
        if case == "grpo, first update":
            unknown = torch.full(mask.shape, torch.nan)
            samples = replace(samples, old_log_prob=unknown)
        algo = PPO(dynamics, **{**NO_CRITIC, **options})
        loss, gradient, _ = loss_and_gradients(algo, model, samples, kl, size)
        # terms of the order of 1 are summed to a loss that may be much smaller
        scale = float(batch["advantage"].abs().mean())
        # a ratio of whole responses: sums of log-probabilities are subtracted
        tolerance = ROUNDED if options.get("ratio") == "product" else TOLERANCE
        assert_equal(loss, batch["loss"], scale, tolerance)
        assert_equal(gradient, batch["gradient"], tolerance=tolerance)


def test_advantages_of_maxrl_are_its_authors() -> None:
    """They add 1e-6 to the mean."""
    recording = Recording("peers", "maxrl")
    assert len(recording.batches) == BATCHES
    for batch in recording.batches:
        score, groups = batch["score"].double(), batch["groups"]
        found = group_advantages(score, groups, std="mean", eps=1e-6)
        assert_equal(found, batch["advantage"])


@pytest.mark.parametrize("case", ["ppo", *(f"ppo, {name}" for name in PPO_CASES)])
def test_ppo_is_trls(case: str) -> None:
    """From scores on: penalties, whitening, GAE, both losses."""
    recording = Recording("ppo", case)
    theirs = recording.options
    # TRL adds 1e-7 to the temperature
    dynamics = Token(length=WIDTH, temperature=theirs["temperature"] + 1e-7)
    fine = theirs["missing_eos_penalty"]
    algo = PPO(
        dynamics,
        gamma=theirs["gamma"],
        lam=theirs["lam"],
        clip_range=theirs["cliprange"],
        value_weight=theirs["vf_coef"],
        value_clip=theirs["cliprange_value"],
        whiten_token_rewards=theirs["whiten_rewards"],
        whiten_unbiased=True,
        score_placement="after_end",
        missing_end="none" if fine is None else "penalty",
        missing_end_value=fine or 0.0,
    )
    kl = KLToken(
        dynamics,
        coefficient=Fixed(value=theirs["kl_coef"]),
        placement="reward",
        estimator=theirs["kl_estimator"],
    )
    assert len(recording.batches) == BATCHES
    for batch in recording.batches:
        model, samples = rollout_of(batch, dynamics)
        samples = replace(samples, rewards={"main": batch["score"]}, penalty=penalty(samples, kl))
        samples = algo.compute_advantages(samples, "main")
        states = samples.tokens.with_end_state().mask.sum() / samples.tokens.mask.sum()  # type: ignore[union-attr]
        loss, gradient, value_gradient = loss_and_gradients(algo, model, samples, None, 4)
        assert_equal(gradient, batch["gradient"], tolerance=ROUNDED)
        # our mean of value losses is over tokens, TRL's over states
        assert_equal(value_gradient, batch["value_gradient"] * states)
        value_loss = theirs["vf_coef"] * batch["value_loss"] * states
        assert_equal(loss, batch["policy_loss"] + value_loss, scale=1.0)


@pytest.mark.parametrize("size", [4, 2])
@pytest.mark.parametrize("case", DPO_CASES)
def test_dpo_is_trls(case: str, size: int) -> None:
    """The first half of TRL's rows are the chosen ones; here pairs follow one another."""
    recording = Recording("dpo", case)
    algo = DPO(**recording.options)
    order = torch.tensor([0, 2, 1, 3])
    assert len(recording.batches) == BATCHES
    for recorded in recording.batches:
        batch = {**recorded, "old_logits": recorded["logits"]}
        model, samples = rollout_of(batch, Token(length=recording.longest))
        model.reference = batch["reference_logits"]
        samples = replace(samples[order], groups=torch.tensor([0, 0, 1, 1]))
        samples = algo.compute_advantages(replace(samples, index=torch.arange(4)), "none")
        loss, gradient, _ = loss_and_gradients(algo, model, samples, None, size)
        assert_equal(loss, batch["loss"], scale=1.0)
        assert_equal(gradient, batch["gradient"])
        items = algo.training_items(samples, model, seed=0, iteration=0)  # type: ignore[arg-type]
        metrics = algo.loss(model, items).metrics  # type: ignore[arg-type]
        for name in ("chosen", "rejected", "margin", "log_prob_chosen", "log_prob_rejected"):
            assert_equal(metrics[f"preference/{name}"].mean(), batch[name], scale=1.0)
        assert metrics["preference/accuracy"].mean() == batch["accuracy"]


def penalty(samples: Rollout, kl: KLToken) -> Tensor:
    """The regularizer's penalty of tokens, from the likelihoods of the rollout."""

    class Model:
        class precision:  # noqa: N801
            replays_exactly = True

    tokens = samples.tokens
    assert tokens is not None
    found = kl._rollout_divergence(Model(), tokens)  # type: ignore[arg-type]
    return kl.coefficient.value * found * tokens.mask


def test_recordings_are_of_the_named_versions() -> None:
    assert Recording("grpo", "grpo").version == "1.16.0"
    assert Recording("dpo", "sigmoid").version == "1.16.0"
    assert Recording("ppo", "ppo").version == "1.12.0"
    commits = "verl 1dda039b, UniRL 30899fcf, maxrl c0698ebb"
    assert Recording("peers", "maxrl").version == commits
