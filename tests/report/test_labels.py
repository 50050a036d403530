import pytest

from rlfactory.report.labels import metric_name, metric_unit, run_choices
from rlfactory.utils.text import plural


@pytest.mark.parametrize(
    ("metric", "name", "unit"),
    [
        ("reward/shapes/mean", "shapes in training", "score"),
        ("eval/shapes/mean", "shapes on evaluation prompts", "score"),
        ("eval/shapes/counting", "shapes, counting", "score"),
        ("kl/old", "Distance from the sampling policy", "mean squared difference"),
        ("eval/kl", "KL to the reference", "nats a token"),
        ("my/own/metric", "my/own/metric", "my/own/metric"),
    ],
)
def test_metrics_have_names_for_people(metric: str, name: str, unit: str) -> None:
    assert (metric_name(metric), metric_unit(metric)) == (name, unit)


def test_one_is_singular() -> None:
    assert [plural(n, "iteration") for n in (0, 1, 2000)] == [
        "0 iterations",
        "1 iteration",
        "2,000 iterations",
    ]


def test_a_run_is_named_by_its_choices() -> None:
    chosen = {"reward": "shapes", "algo": "nft", "model": "tiny_sd3", "hardware": "cpu"}
    assert run_choices({"choices": chosen}) == "tiny_sd3, nft, shapes"
    assert run_choices({}) == ""
