"""The detector of reward hacking: AUROC by hand, the optimum of the fit, tasks left out."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from load_script import load_script

FILE = Path(__file__).parents[2] / "scripts" / "docs" / "detector.py"


@pytest.fixture(scope="module")
def detector() -> ModuleType:
    return load_script(FILE, "detector_script")


@pytest.mark.parametrize(
    ("scores", "labels", "expected"),
    [
        ([0.1, 0.4, 0.35, 0.8], [False, False, True, True], 0.75),
        ([1.0, 2.0, 3.0], [True, False, False], 0.0),
        ([0.5, 0.5, 0.5], [True, False, True], 0.5),
        ([3.0, 1.0, 2.0, 2.0], [True, False, True, False], 0.875),
    ],
)
def test_auroc_counts_pairs(
    detector: ModuleType, scores: list[float], labels: list[bool], expected: float
) -> None:
    assert detector.auroc(scores, labels) == expected


def test_without_both_labels_there_is_no_auroc(detector: ModuleType) -> None:
    assert np.isnan(detector.auroc([0.2, 0.3], [True, True]))


def examples(detector: ModuleType, sign: float, task: str, count: int = 40) -> list[object]:
    """The label follows the first of two features, by `sign`, with noise."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(count, 2))
    noise = rng.normal(size=count)
    return [
        detector.Example(task, {"a": 5 + 2 * a, "b": b}, bool(sign * a + 0.3 * n > 0))
        for (a, b), n in zip(rows, noise, strict=True)
    ]


def test_the_fit_is_the_optimum(detector: ModuleType) -> None:
    """The gradient of the penalised loss vanishes, and moving any weight makes it worse."""
    data = examples(detector, 1.0, "x")
    model = detector.fit(data, ["a", "b"], penalty=2.0)
    x = np.array([[e.features["a"], e.features["b"]] for e in data])
    y = np.array([e.fallen for e in data], dtype=float)
    z = (x - x.mean(0)) / x.std(0)

    def loss(weights: np.ndarray, bias: float) -> float:
        logits = z @ weights + bias
        likelihood = np.logaddexp(0, logits).sum() - (y * logits).sum()
        return float(likelihood + 2.0 / 2 * (weights**2).sum())

    best = loss(model.weights, model.bias)
    for i in range(2):
        for step in (-1e-2, 1e-2):
            assert loss(model.weights + step * np.eye(2)[i], model.bias) > best
    assert loss(model.weights, model.bias + 1e-2) > best < loss(model.weights, model.bias - 1e-2)
    assert model.warn({"a": 9.0, "b": 0.0}) > 0.9 > 0.1 > model.warn({"a": 1.0, "b": 0.0})


def test_a_task_is_judged_by_the_others_alone(detector: ModuleType) -> None:
    """With the opposite sign in one task, a model of the others is wrong about it."""
    data = [
        *examples(detector, 1.0, "x"),
        *examples(detector, 1.0, "y"),
        *examples(detector, -1.0, "z"),
    ]
    found = detector.auroc_by_task(data, ["a", "b"])
    assert found["z"] < 0.1
    alike = detector.auroc_by_task([e for e in data if e.task != "z"], ["a", "b"])
    assert min(alike.values()) > 0.9


def test_a_model_of_one_label_alone_has_no_auroc(detector: ModuleType) -> None:
    both = examples(detector, 1.0, "x")
    fallen = [detector.Example("y", e.features, True) for e in examples(detector, 1.0, "y")]
    assert all(np.isnan(v) for v in detector.auroc_by_task([*both, *fallen], ["a", "b"]).values())
