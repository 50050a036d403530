"""The page of reward hacking: what it reads of a run, and that its words follow from intervals."""

import importlib
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from rlfactory.report.read import RunRecord

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts" / "docs"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "scripts" / "docs"))


@pytest.fixture(scope="module")
def runs() -> ModuleType:
    return script("hacking_runs")


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return script("hacking")


def series(*values: float) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(1.0, len(values) + 1), np.array(values)


def record() -> RunRecord:
    evaluated = np.array([0.0, 4.0, 6.0])
    logged = {
        "eval/shapes/mean": (evaluated, np.array([0.6, 0.56, 0.2])),
        "eval/shapes_biased/mean": (evaluated, np.array([1.0, 1.1, 2.0])),
        "eval/diversity": (evaluated, np.array([0.2, 0.2, 0.1])),
        "reward/shapes_biased/mean": series(1.0, 1.2, 1.4, 1.6, 2.0, 2.4),
        "reward/shapes_biased/std": series(0.2, 0.4, 0.6, 0.4, 0.2, 0.2),
        "kl/reference": series(0.1, 0.1, 0.1, 0.4, 0.8, 1.2),
        "diversity/pairwise": series(0.2, 0.2, 0.2, 0.1, 0.1, 0.1),
    }
    return RunRecord(Path("x"), "done", {"seed": 3}, logged)


def test_a_run_is_read_with_its_proxy_and_distance(runs: ModuleType) -> None:
    run = runs.run_of(record(), "hacking", "V-GRPO, biased")
    assert (run.proxy, run.seed, len(run.points)) == ("shapes_biased", 3, 3)
    assert (run.first.gold, run.first.distance, run.first.features) == (0.6, 0.0, {})
    assert (run.last.gold, run.last.proxy, run.last.distance) == (0.2, 2.0, 1.2)
    assert run.last.others == {"diversity": 0.1}


def test_features_are_changes_since_the_first_iterations(runs: ModuleType) -> None:
    found = runs.features_at(record().series, "shapes_biased", 6.0)
    assert found["proxy"] == pytest.approx((2.0 - 1.2) / 0.4)
    assert found["spread"] == pytest.approx(math.log((0.8 / 3) / 0.4))
    assert found["distance"] == pytest.approx(math.log(0.8 / 0.1))
    assert found["diversity"] == pytest.approx(math.log(0.5))
    early = runs.features_at(record().series, "shapes_biased", 4.0)
    assert early["proxy"] == pytest.approx((1.4 - 1.2) / 0.4)


def test_features_see_nothing_of_the_gold_score(runs: ModuleType) -> None:
    logged = dict(record().series)
    before = runs.features_at(logged, "shapes_biased", 6.0)
    logged["eval/shapes/mean"] = (np.array([0.0, 6.0]), np.array([0.0, 1.0]))
    logged["reward/shapes/mean"] = series(*np.linspace(0, 1, 6))
    assert runs.features_at(logged, "shapes_biased", 6.0) == before


def test_an_example_has_fallen_beyond_the_margin(runs: ModuleType) -> None:
    run = runs.run_of(record(), "hacking", "V-GRPO, biased")
    assert [e.fallen for e in runs.examples([run])] == [False, True]


def test_runs_are_stored_and_replaced(runs: ModuleType, tmp_path: Path) -> None:
    run = runs.run_of(record(), "hacking", "V-GRPO, biased")
    runs.write_runs([run], tmp_path / "x.json")
    (read,) = runs.read_runs(tmp_path / "x.json")
    assert read.last.gold == run.last.gold
    assert len(runs.merged([read], [run, runs.run_of(record(), "hacking", "other")])) == 2


def test_a_spread_has_an_interval_from_three_runs_on(page: ModuleType) -> None:
    assert page.spread([0.1, 0.2]) == "+0.15"
    # 4.303 standard errors of 0.01 on either side
    assert page.spread([0.1, 0.12, 0.11]) == "+0.11 (+0.09 … +0.13)"


def test_claims_have_the_rules_of_reports(page: ModuleType, runs: ModuleType) -> None:
    run = runs.run_of(record(), "hacking", "V-GRPO, biased")
    ends = [0.2, 0.21, 0.19, 0.22, 0.18]
    ours = [
        replace(run, seed=seed, points=[run.first, replace(run.last, gold=gold)])
        for seed, gold in enumerate(ends)
    ]
    first, *others = page.decided_claims("hacking", {"V-GRPO, biased": ours})
    assert (first.verdict, first.seeds) == ("agree", 5)
    assert first.difference == pytest.approx(-0.4)
    assert {other.verdict for other in others} == {"undecided"}
    four, *_ = page.decided_claims("hacking", {"V-GRPO, biased": ours[:4]})
    assert (four.verdict, four.reason) == ("undecided", "4 seeds")


def test_the_detector_sees_no_run_that_trains_on_gold(runs: ModuleType) -> None:
    run = runs.run_of(record(), "hacking", "V-GRPO, biased")
    assert [*runs.examples([replace(run, proxy="shapes")])] == []


def test_the_page_is_what_its_runs_give(page: ModuleType) -> None:
    stored = page.read_runs(page.STORE)
    assert stored
    shown = page.page(stored)
    assert all(f"\n| {run.row} | " in shown for run in stored)
    assert shown.count("claims: ") == len(page.GOLD)


def test_rows_are_compared_with_the_baseline_s_seeds(page: ModuleType, runs: ModuleType) -> None:
    run = runs.run_of(record(), "hacking", "V-GRPO, biased")
    other = replace(run, seed=4)
    assert page.beside([run], [run]) == "–"
    assert page.beside([other], [run]) == "–", "no seed in common"
    better = replace(run, points=[run.first, replace(run.last, gold=0.5)])
    assert page.beside([better], [run]) == "+0.30"


def test_one_proxy_alone_has_no_detector(page: ModuleType, runs: ModuleType) -> None:
    run = runs.run_of(record(), "hacking", "V-GRPO, biased")
    assert [*page.detector_lines([run])][-1].endswith("no AUROC yet.")


def test_a_control_is_set_beside_its_proxy(page: ModuleType, runs: ModuleType) -> None:
    run = runs.run_of(record(), "hacking", "V-GRPO, biased")
    better = replace(run, points=[run.first, replace(run.last, gold=0.5)])
    (text, _) = page.controls({"V-GRPO, biased": [run], "V-GRPO, gold": [better]})
    assert "V-GRPO, gold: -0.10, biased beside it: -0.30." in text
    assert [*page.controls({"V-GRPO, biased": [run]})] == []
