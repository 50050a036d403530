"""Methods over several tasks: gains, ranks, profiles, what is written and drawn."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rlfactory.report.command import FORMATS, write
from rlfactory.report.discover import report_of_sweep
from rlfactory.report.leaderboard import (
    draw_leaderboard,
    efficiency,
    entries_of,
    gains,
    leaderboard_table,
    profile,
    ranking,
    read_entries,
    thresholds_of,
    write_entries,
)
from rlfactory.report.read import RunRecord
from rlfactory.report.report import Entry
from rlfactory.report.run_groups import Group
from rlfactory.report.statistics import interquartile_mean
from rlfactory.sweep.table import Column, Job, Row, Table, TableInfo, Task


def run(seed: int, first: float, last: float) -> RunRecord:
    series = {
        "eval/kb/mean": (np.array([0.0, 4.0]), np.array([first, last])),
        "reward/kb/mean": (np.array([1.0, 2.0, 4.0]), np.array([0.1, 0.2, 0.4])),
        "nfe/total": (np.array([1.0, 2.0, 4.0]), np.array([10.0, 20.0, 40.0])),
    }
    return RunRecord(Path("run"), "done", {"seed": seed}, series)


def entry(method: str, task: str, seed: int, gain: float) -> Entry:
    return Entry(method, task, seed, 0.0, gain, gain, [10.0, 20.0], [0.0, gain])


def entries() -> list[Entry]:
    rng = np.random.default_rng(0)
    means = {"good": (0.8, 0.6), "middle": (0.5, 0.4), "poor": (0.1, 0.0)}
    return [
        entry(method, task, seed, float(mean + 0.02 * rng.normal()))
        for method, by_task in means.items()
        for task, mean in zip(("a", "b"), by_task, strict=True)
        for seed in range(5)
    ]


def test_a_gain_is_the_share_of_the_way_to_the_target() -> None:
    column = Column("kb", "kB", "eval/kb", better="lower", scale=2.0)
    table = Table(
        "board",
        "tiny",
        TableInfo("board"),
        [column],
        [Row("nft on JPEG", method="nft", task="JPEG"), Row("other")],
        [],
        tasks={"JPEG": Task("kb", 1.0)},
    )
    groups = [Group("nft on JPEG", [run(3, 1.0, 0.75)]), Group("other", [run(3, 1.0, 0.7)])]
    (found,) = entries_of(table, groups)
    assert (found.method, found.task, found.seed) == ("nft", "JPEG", 3)
    assert (found.before, found.after) == (2.0, 1.5)
    assert found.gain == pytest.approx(0.5)  # half of the way from 2 to 1
    assert found.nfe == [10.0, 20.0, 40.0]
    assert found.reward == [0.1, 0.2, 0.4]


def test_methods_are_ranked_by_the_interquartile_mean_of_all_runs() -> None:
    found = entries()
    places = ranking(found)
    assert [place.method for place in places] == ["good", "middle", "poor"]
    own = np.concatenate([*gains(found, "middle").values()])
    assert places[1].iqm == pytest.approx(float(interquartile_mean(own)))
    assert places[1].interval is not None
    assert places[1].interval[0] < places[1].iqm < places[1].interval[1]
    assert places[0].better is None
    assert places[1].better == 1.0  # every run of the first is better
    assert places[1].runs == 10


def test_methods_of_two_runs_have_no_interval() -> None:
    few = [e for e in entries() if e.seed < 2]
    assert all(place.interval is None and place.better is None for place in ranking(few))


def test_a_profile_falls_from_all_runs_to_none() -> None:
    found = entries()
    at = thresholds_of(found)
    shares = profile(gains(found, "good").values(), at)
    assert np.all(np.diff(shares) <= 0)
    assert shares[0] == 1.0
    assert shares[-1] == 0.0
    half = profile([np.array([0.0, 1.0]), np.array([1.0, 1.0])], np.array([0.5]))
    assert half == 0.75  # the mean over tasks


def test_training_is_averaged_over_seeds_at_equal_cost() -> None:
    curve = next(c for c in efficiency(entries()) if c.row == "good")
    mean = gains(entries(), "good")["a"].mean()
    assert curve.x == [0.01, 0.02]  # thousands
    assert curve.mean == pytest.approx([0.0, mean])
    assert (curve.label, curve.metric) == ("a", "training reward")


def test_runs_whose_numbers_of_passes_differ_have_a_curve_at_the_mean_number() -> None:
    """The pairs of Diffusion-DPO and the tree of BranchGRPO make other passes with each seed."""
    two = [
        Entry("dpo", "a", seed, 0.0, 1.0, 1.0, [10.0 + seed, 20.0 + 3 * seed], [0.0, 1.0 + seed])
        for seed in (0, 2)
    ]
    (curve,) = efficiency(two)
    assert curve.x == [0.011, 0.023]
    assert curve.mean == [0.0, 2.0]


def test_the_table_has_a_line_for_each_method(tmp_path: Path) -> None:
    table = leaderboard_table(entries())
    assert table is not None
    assert [line[0] for line in table.lines] == ["good", "middle", "poor"]
    assert table.heads[:4] == ["method", "a", "b", "IQM gain"]
    assert leaderboard_table([]) is None
    assert read_entries(write_entries(entries(), tmp_path / "e.json")) == entries()
    assert draw_leaderboard(entries(), tmp_path / "b.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_report_of_a_sweep_with_tasks_has_a_leaderboard(
    tmp_path: Path, make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, jobs = tmp_path / "board", []
    for method, after in (("NFT", 0.8), ("GRPO", 0.5)):
        for seed in range(3):
            name = f"{method}-s{seed}"
            make_run(folder / name, seed=seed, after=after + 0.01 * seed)
            jobs.append(Job(name, method, name, [], {"seed": seed}))
    rows = [Row(name, method=name, task="scenes") for name in ("GRPO", "NFT")]
    columns = [Column("shapes", "Shapes", "eval/shapes", better="higher")]
    tasks = {"scenes": Task("shapes", 1.0)}
    Table("board", "tiny", TableInfo("Board"), columns, rows, jobs, tasks=tasks).save(folder)
    report = report_of_sweep(Table.load(folder), folder)
    written = write(report, tmp_path / "report", FORMATS)
    assert {"leaderboard.png", "leaderboard.json"} <= {path.name for path in written}
    page = (tmp_path / "report" / "report.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("| NFT | 0.7"))
    assert page.index("## Leaderboard") < page.index(line)
    assert "IQM gain" in (tmp_path / "report" / "report.html").read_text()
