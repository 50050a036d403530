"""What each process has, and what all know: processes are threads here."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from rlfactory.hardware.base import Hardware
from rlfactory.hardware.local import Local
from rlfactory.rollout import GlobalRollout, Rollout
from rlfactory.train.data_parallel import (
    Shard,
    attach_global,
    gather_metrics,
    gather_rollout,
    global_rollout,
    local_part,
    local_row_numbers,
    local_rows,
)
from rlfactory.train.iteration_metrics import MetricAccumulator
from rlfactory.train.trainer import Trainer
from rlfactory.utils.pytree import index_rows

Together = Callable[..., list[Any]]
GROUPS = torch.tensor([0, 0, 1, 1, 2, 2])


def rolled() -> Rollout:
    numbers = torch.arange(6)
    return Rollout(
        prompts=[f"prompt {g}" for g in GROUPS.tolist()],
        metadata=[{}] * 6,
        groups=GROUPS,
        index=numbers,
        latents=numbers.float()[:, None],
        texts=[f"text {n}" for n in numbers.tolist()],
        rewards={"r": numbers.float() ** 2},
    )


def dealt(hardware: Hardware) -> Rollout:
    rows = local_rows(GROUPS, hardware)
    assert rows is not None
    return index_rows(rolled(), rows)


def test_one_process_has_all_and_gathers_nothing() -> None:
    hardware, rollout = Local(device="cpu"), rolled()
    assert local_rows(GROUPS, hardware) is None
    assert gather_rollout(rollout, hardware) is rollout
    assert global_rollout(rollout) is rollout
    assert local_part(rollout, rollout) is rollout
    assert attach_global(rollout, rollout) is rollout
    values = torch.arange(3)
    deal = Shard(None, hardware)
    assert deal.all_gather(values) is values
    assert deal.all_gather(["a"]) == ["a"]
    assert deal.all_gather_scores({"r": values}) == {"r": values}
    assert gather_metrics([], hardware) == {}


def test_an_update_s_metrics_are_of_all_its_micro_batches() -> None:
    """A lone process once gave each micro-batch by itself, and `target_kl` saw the last one."""
    parts = [{"kl/approx": torch.full((3,), 9.0)}, {"kl/approx": torch.tensor([0.2])}]
    metrics = MetricAccumulator()
    metrics.extend(gather_metrics(parts, Local(device="cpu")))
    assert metrics.latest("kl/approx") == pytest.approx((3 * 9.0 + 0.2) / 4)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([0, 0, 1, 1, 2, 2], [[0, 1, 2, 3], [4, 5]]),
        ([1, 0, 1, 0], [[1, 3], [0, 2]]),
        ([0, 0], [[0, 1], [0, 1]]),
    ],
)
def test_groups_are_dealt_whole_and_nobody_goes_without(
    groups: list[int], expected: list[list[int]], together: Together
) -> None:
    found = together(2, lambda hardware: local_rows(torch.tensor(groups), hardware))
    assert [rows.tolist() for rows in found] == expected


@pytest.mark.parametrize("count", [2, 3, 4])
def test_what_was_dealt_comes_back_in_order(count: int, together: Together) -> None:
    def work(hardware: Hardware) -> Any:
        rows = local_rows(GROUPS, hardware)
        assert rows is not None
        deal = Shard(rows, hardware)
        return deal.all_gather(rows * 10).tolist(), deal.all_gather(
            [f"é{n}" for n in rows.tolist()]
        )

    for values, texts in together(count, work):
        assert values == [0, 10, 20, 30, 40, 50]
        assert texts == [f"é{n}" for n in range(6)]


def test_a_score_that_only_one_has_is_missing_elsewhere(together: Together) -> None:
    def work(hardware: Hardware) -> Any:
        rows = local_rows(GROUPS, hardware)
        assert rows is not None
        scores = {"r": rows.float()} | ({"s": rows.float()} if hardware.rank else {})
        return Shard(rows, hardware).all_gather_scores(scores)

    for found in together(2, work):
        assert [*found] == ["r", "s"]
        assert found["r"].tolist() == [0, 1, 2, 3, 4, 5]
        assert found["s"].isnan().tolist() == [True] * 4 + [False] * 2


def test_all_know_what_is_light_of_all(together: Together) -> None:
    for whole in together(2, lambda hardware: gather_rollout(dealt(hardware), hardware)):
        assert whole.index.tolist() == [0, 1, 2, 3, 4, 5]
        assert whole.groups.tolist() == GROUPS.tolist()
        assert whole.prompts == rolled().prompts
        assert whole.texts == rolled().texts
        assert whole.rewards["r"].tolist() == [0, 1, 4, 9, 16, 25]
        assert whole.latents is None


def test_each_keeps_what_is_its_own_of_some_of_all(together: Together) -> None:
    def work(hardware: Hardware) -> Any:
        rollout = dealt(hardware)
        whole = gather_rollout(rollout, hardware)
        rollout = replace(rollout, all_ranks=GlobalRollout(whole))
        scaled = {"advantage": whole.index * 0.5, "token_weight": whole.index * 2.0}
        kept = replace(whole, **scaled, loss_weight=0.5)[torch.tensor([5, 0, 3])]
        own = attach_global(rollout, kept)
        share = local_part(own, global_rollout(own)[torch.tensor([2, 1])])
        return own, share, local_row_numbers(own, torch.tensor([2, 0, 1]))

    first, second = together(2, work)
    assert [own.index.tolist() for own, *_ in (first, second)] == [[0, 3], [5]]
    assert first[0].advantage.tolist() == [0.0, 1.5]
    assert first[0].token_weight.tolist() == [0.0, 6.0]
    assert first[0].loss_weight == 0.5
    assert first[1].index.tolist() == [3, 0]
    assert len(second[1]) == 0
    assert first[2].tolist() == [1, 0]
    assert second[2].tolist() == [0]
    padding = second[0].all_ranks.padding
    assert (padding.index.tolist(), padding.advantage.tolist()) == ([4], [0.0])


def test_what_is_measured_is_pooled_even_if_one_has_measured_nothing(together: Together) -> None:
    def work(hardware: Hardware) -> Any:
        here = [{"a": torch.tensor([1.0, 2.0]), "b": torch.tensor(5.0)}, {"a": torch.ones(1)}]
        here[1]["b"] = torch.tensor([6.0])
        return gather_metrics(here if hardware.rank == 1 else [], hardware)

    for found in together(3, work):
        assert {name: values.tolist() for name, values in found.items()} == {
            "a": [1.0, 2.0, 1.0],
            "b": [5.0, 6.0],
        }


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(
    "words",
    [
        ["algo=grpo", "regularizer=kl_v", "micro_batch=3"],
        ["algo=grpo", "regularizer=kl_v", "micro_batch=5"],  # micro-batches of several sizes
        ["algo=nft", "advantage.zero_variance=drop"],
        ["algo=awm", "epochs=2", "micro_batch=4"],
        ["algo=ddpo", "advantage.min_count=2", "updates_per_iteration=6"],
    ],
    ids=" ".join,
)
def test_processes_learn_as_one(
    words: list[str], count: int, loop: Callable[..., Trainer], together: Together
) -> None:
    """The loop on a network of two numbers, whose processes sum their gradients."""

    def train(trainer: Trainer) -> Any:
        rollout, metrics = trainer.score(trainer.sample(0))
        metrics |= trainer.learner.learn(rollout, 0)
        parameters = trainer.components.model.weights.parameters
        return metrics, [float(value.detach()) for value in parameters.values()]

    several = ["prompts_per_iteration=6", "sample_batch=100", "optimizer.eps=1e-3"]
    common = [] if any("micro_batch" in word for word in words) else ["micro_batch=5"]
    common = [*words, *several, *common]
    metrics, weights = train(loop(*common))
    trainers = [loop(*common) for _ in range(count)]

    def work(hardware: Hardware) -> Any:
        trainer = trainers[hardware.rank]
        trainer.components = replace(trainer.components, hardware=hardware)
        trainer.learner.components = trainer.components
        return train(trainer)

    for found, theirs in together(count, work):
        assert theirs == pytest.approx(weights, abs=1e-6)
        assert found.keys() == metrics.keys()
        for name, value in metrics.items():
            assert found[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name
