"""Weights and metrics of algorithms and experiments are the stored ones, also of resumed runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import standards
import torch
from standards import Key, Standard, trained, words_of, words_of_experiment
from tiny_pipelines import *  # noqa: F403  (its fixtures)

from rlfactory.config.options import options

STORED = standards.stored()
MACHINE = standards.machine()
ALGORITHMS = [(name, layout) for name in options("algo") for layout in standards.LAYOUTS]
COVERING = standards.covering()
QUICK = [("grpo", "split"), ("ppo", "whole")]
Compare = Callable[[Key, Standard], None]


UNDIVIDED = ("dpo", "draft")
"""Algorithms of no experiment and without one of the same kind, whose updates are of one layout."""
RESUMED = ("branch_grpo", "ddpo", "diffusion_dpo", "draft", "dpo", "grpo", "nft", "opd", "ppo")
"""One of each kind of state; tests/train/test_session.py resumes all that learn from images."""


def repeated(*keys: Key, kept: Callable[[Key], bool]) -> list[Any]:
    """Cases, of which those that aren't `kept` run where all are asked for."""
    return [pytest.param(*key, marks=() if kept(key) else pytest.mark.whole) for key in keys]


def agrees(key: Key, found: Standard) -> None:
    """Fail unless a case has the stored bits, or came as far on another kind of machine."""
    if of_machine := STORED.get(MACHINE):
        assert found == {name: of_machine[key][name] for name in found}
        return
    expected = next(iter(STORED.values()))[key]
    # rounding differs there, and Adam makes much of the smallest gradients
    assert found["norm"] == pytest.approx(expected["norm"], rel=1e-5)
    if "moved" in found:
        assert found["moved"] == pytest.approx(expected["moved"], rel=0.02)


@pytest.fixture
def compare(request: pytest.FixtureRequest) -> Compare:
    """As `agrees`; with --write-standards it stores what is lacking, or all that is found."""
    writes = request.config.option.write_standards

    def compared(key: Key, found: Standard) -> None:
        own = STORED.get(MACHINE, {})
        if writes and (key not in own or writes == "moved"):
            standards.store(MACHINE, key, found)
        else:
            agrees(key, found)

    return compared


@pytest.mark.parametrize(("algorithm", "layout"), QUICK)
def test_two_algorithms_are_as_stored(algorithm: str, layout: str, compare: Compare) -> None:
    compare((algorithm, layout), trained(words_of(algorithm, layout)))


@pytest.mark.slow
@pytest.mark.standards
@pytest.mark.parametrize(
    ("algorithm", "layout"),
    # those that are resumed have the bits of one layout, and experiments those of the other
    repeated(
        *ALGORITHMS,
        kept=lambda key: key[0] in UNDIVIDED if key[1] == "whole" else key[0] not in RESUMED,
    ),
)
def test_an_algorithm_is_as_stored(algorithm: str, layout: str, compare: Compare) -> None:
    compare((algorithm, layout), trained(words_of(algorithm, layout)))


@pytest.fixture
def smallest(
    small: Callable[[str], list[str]], flux_folders: dict[str, Path]
) -> Callable[[str], list[str]]:
    """As `small`, and a FLUX.1 that is smaller than the one that ships."""

    def words(model: str) -> list[str]:
        if model != "flux":
            return small(model)
        own = ("model.size=64", "model.text_tokens=16", "prompt_cache=null")
        return [f"model.path={flux_folders['dev']}", *own]

    return words


@pytest.mark.slow
@pytest.mark.standards
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in COVERING else pytest.mark.whole)
        for name in options("experiment")
    ],
)
def test_an_experiment_is_as_stored(
    name: str, compare: Compare, smallest: Callable[[str], list[str]]
) -> None:
    compare((name, "whole"), trained(words_of_experiment(name, smallest)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "layout"),
    repeated(*ALGORITHMS, kept=lambda key: key[0] in RESUMED and key[1] == "split"),
)
def test_a_resumed_run_has_the_same_weights(algorithm: str, layout: str) -> None:
    found = trained(words_of(algorithm, layout), pause=1)
    del found["moved"]  # since it was resumed
    agrees((algorithm, layout), found)


def test_every_algorithm_and_experiment_is_stored() -> None:
    experiments = [(name, "whole") for name in options("experiment")]
    for of_machine in STORED.values():
        assert {*of_machine} == {*ALGORITHMS, *experiments}
        assert all(found["moved"] > 0.001 for found in of_machine.values())
        assert len({found["sha256"] for found in of_machine.values()}) == len(of_machine)


def test_a_bit_is_seen() -> None:
    first = {"w": torch.zeros(3)}
    near = {"w": torch.tensor([1.0, 2.0, 3.0])}
    other = {"w": torch.nextafter(near["w"], torch.tensor(9.0))}
    one, two = standards.summary(first, near), standards.summary(first, other)
    assert one["sha256"] != two["sha256"]
    assert one["moved"] == pytest.approx(two["moved"])
