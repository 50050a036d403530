"""The arithmetic of evaluations is what a run counts."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from rlfactory.batch import TrainingItems
from rlfactory.config import nfe
from rlfactory.config.checks.base import Config, Traits, stochastic_steps
from rlfactory.config.schema.root import COMPONENTS
from rlfactory.config.schema.signature import read_signature
from rlfactory.rollout import Condition
from rlfactory.train.components import Metrics
from rlfactory.train.trainer import Trainer

FULL = "model.finetune=full"
BRANCHED = ["algo=grpo", "branches=4", "window.steps=[2,3]"]
EACH = ["algo=grpo", "branches=2", "branch_at=step", "window.steps=[1,3]"]
# one tree of four leaves for each prompt
BY_GROUPS = ["prompts_per_iteration=4", "group_size=3"]
TREE = ["algo=branch_grpo", "group_size=4", "prompts_per_iteration=3", "branches=4"]
TREE += ["tree.splits=[0,2]", "window=all", "window.skip_last=0"]
# words, then evaluations of a sample: to draw it, to compare policies on it, to learn from it.
# Six steps, four training times, two updates on twelve samples.
CASES: list[tuple[list[str], tuple[float, float, float]]] = [
    (["algo=nft"], (6, 4, 4)),
    (["algo=nft", "regularizer=kl_v"], (6, 8, 4)),
    (["algo=nft", "regularizer=kl_ema"], (6, 4, 4)),  # the old policy is asked once for both
    (["algo=nft", "regularizer=kl_awm", "epochs=2"], (6, 16, 8)),
    (["algo=nft", "dynamics=dpm_solver"], (6, 4, 4)),
    (["algo=nft", "dynamics=sa_solver", "times.count=3"], (6, 3, 3)),
    (["algo=nft", "dynamics=flow_sde"], (6, 4, 4)),
    # the second of two updates asks what the policy said before the first
    (["algo=awm"], (6, 4 + 2, 4)),
    (["algo=awm", "regularizer=none"], (6, 2, 4)),
    (["algo=awm", "regularizer=none", "updates_per_iteration=1"], (6, 0, 4)),
    (["algo=awm", "regularizer=none", "updates_per_iteration=4"], (6, 3, 4)),
    (["algo=awm", "regularizer=none", "algo.shortcut=false"], (6, 4, 4)),
    (["algo=awm", "regularizer=none", "algo.behaviour=old"], (6, 4, 4)),
    (["algo=awm", "regularizer=none", "epochs=2"], (6, 4, 8)),
    (["algo=awm", "algo.ratio=sum_first", "micro_batch=5"], (6, 6, 4)),
    (["algo=vgrpo"], (6, 2, 4)),
    (["algo=vgrpo", "regularizer=kl_behaviour"], (6, 6, 4)),
    (["algo=vgrpo", "regularizer=kl_behaviour", "regularizer.compare=surrogate"], (6, 2, 4)),
    (["algo=grpo"], (6, 0, 3)),
    (["algo=grpo", "regularizer=kl_gaussian"], (6, 3, 3)),
    (["algo=grpo", "window=all", "epochs=3"], (6, 0, 15)),
    (["algo=grpo", "window=all", "window.skip_last=0", "dynamics=dance_sde"], (6, 0, 6)),
    (["algo=grpo", "window.steps=[1,3,3]"], (6, 0, 2)),
    (["algo=grpo", "window.steps=[3,1]", "tail=0.5"], (4 + 1, 0, 2)),
    (["algo=grpo", "window=progressive"], (6, 0, 4)),
    (["algo=grpo", "window=all", "algo.step_fraction=0.6"], (6, 0, 3)),
    (["algo=grpo_guard"], (6, 0, 3)),
    (["algo=flow_dppo"], (6, 0, 3)),
    (["algo=dgpo", *BY_GROUPS], (6, 8, 4)),
    (["algo=crd", *BY_GROUPS], (6, 8, 4)),
    (["algo=nft", "regularizer=gardo", "regularizer.others=[shapes]"], (6, 8, 4)),
    (
        ["algo=dgpo", *BY_GROUPS, "algo.reference=old", "regularizer=kl_v", "micro_batch=1"],
        (6, 8, 4),
    ),
    (["algo=ddpo"], (6, 0, 3)),
    (["algo=ddpo_sf", "updates_per_iteration=1"], (6, 0, 3)),
    (BRANCHED, (2 / 4 + 4, 0, 2)),
    ([*BRANCHED, "branches=2"], (2 / 2 + 4, 0, 2)),
    ([*BRANCHED, "tail=0.5"], (2 / 4 + 2 + 1, 0, 2)),
    ([*BRANCHED, "tail=0.1"], (2 / 4 + 2 + 1, 0, 2)),
    # one seed: a step, then two branches to the end; two more steps, two branches to the end
    (EACH, ((1 + 2 * 5 + 2 + 2 * 3) / 4, 0, 1)),
    ([*EACH, "tail=0.5"], ((1 + 2 * 3 + 2 + 2 * 2) / 4, 0, 1)),
    # a root, two nodes twice, four leaves from the third step on; each edge is trained once
    (TREE, ((1 + 2 * 2 + 3 * 4) / 4, 0, (2 * 2 + 4 * 4) / 4)),
    ([*TREE, "tree.splits=[0]"], ((1 + 5 * 4) / 4, 0, 6)),
    ([*TREE, "window=fixed", "window.steps=[1]"], ((1 + 2 * 2 + 3 * 4) / 4, 0, (2 + 2 + 4) / 4)),
    ([*TREE, "algo.width=extremes"], (17 / 4, 0, (2 * 2 + 4 + 3 * 2) / 4)),
    ([*TREE, "algo.width=best_child"], (17 / 4, 0, (2 * 2 + 4 + 3 * 2) / 4)),
    ([*TREE, "algo.skip_steps=[4,5]"], (17 / 4, 0, (2 * 2 + 2 * 4) / 4)),
    ([*TREE, "window.skip_last=2", "tail=0.5"], ((1 + 2 * 2 + 4 + 4) / 4, 0, (2 * 2 + 2 * 4) / 4)),
    ([*TREE, "branches=1", "tree.splits=[]"], (6, 0, 6)),
]


@pytest.fixture
def costed(planned: Callable[..., Config]) -> Callable[..., tuple[Config, Traits]]:
    """The configuration of a command line, and what its parts say of themselves."""

    def read_all(*words: str) -> tuple[Config, Traits]:
        config = planned(*words)
        nodes = {key: config[key] for key in COMPONENTS}
        terms = config["regularizer"].get("terms") or {}
        nodes |= {f"regularizer.terms.{name}": node for name, node in terms.items()}
        return config, {
            key: read_signature(node["_target_"]).class_constants for key, node in nodes.items()
        }

    return read_all


Costed = Callable[..., tuple[Config, Traits]]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "expected"), CASES, ids=str)
def test_a_run_counts_what_the_plan_says(
    words: list[str],
    expected: tuple[float, float, float],
    costed: Costed,
    loop: Callable[..., Trainer],
) -> None:
    config, traits = costed(*words)
    parts = (nfe.nfe_sample, nfe.nfe_compare, nfe.nfe_train)
    assert [part(config, traits) for part in parts] == pytest.approx(expected)
    logged: list[Metrics] = []
    loop(*words).run(lambda iteration, metrics, rollout: logged.append(metrics))
    names = ("nfe/sample", "nfe/compare", "nfe/train")
    assert [logged[0][name] for name in names] == pytest.approx(expected)
    assert logged[0]["nfe/total"] == pytest.approx(12 * sum(expected))


def test_the_plan_says_it_in_words(costed: Costed) -> None:
    said = nfe.describe_nfe(*costed("algo=awm"))
    assert said == (
        "6 forward passes to sample an image, 6 to compare policies on it, 4 to learn from it"
    )
    assert "compare" not in nfe.describe_nfe(*costed("algo=grpo"))
    assert nfe.describe_nfe(*costed(*BRANCHED)).startswith("4.5 forward passes to sample")


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["algo=grpo"], ["ema"]),
        (["algo=grpo", "evaluation.weights=policy"], []),
        (["algo=nft"], ["ema", "old"]),
        # the reference is the network without adapters
        (["algo=grpo", "regularizer=kl_v"], ["ema"]),
        (["algo=grpo", "regularizer=kl_v", FULL], ["ema", "reference"]),
        (["algo=grpo", FULL, "evaluation.policy_fraction=0.6"], ["ema", "reference"]),
        (["algo=awm", "regularizer=none"], ["ema"]),
        (["algo=awm", "regularizer=none", "algo.behaviour=old"], ["ema", "old"]),
    ],
    ids=str,
)
def test_weight_sets_are_those_that_a_run_keeps(
    words: list[str], kept: list[str], costed: Costed
) -> None:
    assert nfe.weight_sets(*costed("model.finetune=lora", *words)) == {*kept}


def test_guidance_doubles_each(costed: Costed) -> None:
    said = nfe.describe_nfe(*costed("algo=awm", "model.guidance=4.5"))
    assert said.startswith("12 forward passes to sample an image, 12 to compare")
    assert said.endswith("8 to learn from it")
    assert nfe.describe_nfe(*costed("algo=awm", "model.guidance=1")).startswith(
        "6 forward passes to"
    )


@pytest.mark.parametrize("size", [100, 24, 13, 7, 4, 3, 1])
@pytest.mark.parametrize("ratio", ["exp_first", "sum_first"])
def test_micro_batches_are_those_that_learning_makes(size: int, ratio: str, costed: Costed) -> None:
    config, traits = costed("algo=awm", f"algo.ratio={ratio}", f"micro_batch={size}")
    blank = torch.zeros(6, 4)
    items = TrainingItems(
        x=blank,
        t=blank,
        x0=blank,
        condition=Condition({}),
        advantage=blank[:, 0],
        whole_samples=ratio == "sum_first",
    )
    assert nfe.describe_accumulation(config, traits).endswith(
        f" = {len([*items.split(size)])} accumulated"
    )
    assert nfe.describe_accumulation(config, traits).startswith("24 items an update")


def test_a_window_that_moves_is_counted_where_it_begins() -> None:
    config: dict[str, Any] = {
        "window": {"size": 3, "low": 2},
        "schedule": {"steps": 9},
        "branch_at": "window",
    }
    assert stochastic_steps(config) == [2, 3, 4]
    assert stochastic_steps({**config, "window": {"skip_last": 2}}) == list(range(7))
    assert stochastic_steps({**config, "window": {"steps": [5, 1, 5]}}) == [1, 5]
