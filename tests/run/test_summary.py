from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from rlfactory.run.folder import RunFolder
from rlfactory.run.scores import Scores
from rlfactory.run.statistics import paired_change
from rlfactory.run.summary import changes, summary_table, where_to_look, write_summary

METRICS: list[dict[str, float | None]] = [
    {"iteration": 0, "eval/strict/mean": 0.5},
    {
        "iteration": 0,
        "time/sample": 3.0,
        "time/score": 1.0,
        "time/learn": 4.0,
        "memory/peak_gb": 2.5,
    },
    {
        "iteration": 1,
        "time/sample": 1.0,
        "time/score": 1.0,
        "time/learn": None,
        "memory/peak_gb": 1.0,
    },
]


def pair() -> tuple[Scores, Scores]:
    rng = np.random.default_rng(0)
    prompts = [f"prompt {i}" for i in range(120)]
    kinds = ["colors", "counting", "position"] * 40
    strict = (rng.random(120) < 0.5).astype(float)
    better = np.where(rng.random(120) < 0.4, 1.0, strict)
    better[0] = np.nan
    noise = rng.normal(size=(2, 120))
    return (
        Scores(prompts, {"strict": strict, "noise": noise[0]}, kinds, diversity=0.30),
        Scores(prompts, {"strict": better, "noise": noise[1]}, kinds, diversity=0.28),
    )


def test_changes_are_paired_over_all_and_over_each_category() -> None:
    before, after = pair()
    table = changes(before, after)
    assert list(table) == ["strict", "noise"]
    assert list(table["strict"]) == ["all", "colors", "counting", "position"]
    old, new = before.values["strict"], after.values["strict"]
    assert table["strict"]["all"] == paired_change(old, new)
    assert table["strict"]["counting"] == paired_change(old[1::3], new[1::3])
    assert table["strict"]["all"].count == 119
    assert table["strict"]["all"].low > 0


def test_other_prompts_make_no_pairs() -> None:
    before, after = pair()
    other = Scores(after.prompts[::-1], after.values, after.categories)
    with pytest.raises(ValueError, match="same prompts"):
        changes(before, other)


def test_without_categories_there_is_one_row_a_score() -> None:
    before, after = (Scores(["a", "b"], {"x": np.array([0.0, 1.0])}) for _ in range(2))
    assert list(changes(before, after)["x"]) == ["all"]
    assert summary_table(before, after).row_count == 2


def test_the_table_fits_a_terminal_and_marks_what_is_clear() -> None:
    before, after = pair()
    console = Console(width=80, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(summary_table(before, after))
    text = capture.get()
    change = changes(before, after)["strict"]["all"]
    assert f"\x1b[1m+{change.difference:.3f}\x1b[0m" in text
    weak = changes(before, after)["noise"]["all"]
    assert not weak.is_clear
    assert f"\x1b[1m{weak.difference:+.3f}" not in text
    assert "-0.020" in text
    assert "…" in text


def test_the_page_has_results_cost_and_pointers(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "my_run")
    for path in (folder.grid(0), folder.grid(60), folder.strip, folder.curves):
        path.write_text("")
    (folder.checkpoints / "000060").mkdir()
    before, after = pair()
    write_summary(folder.summary, before=before, after=after, metrics=METRICS)
    text = folder.summary.read_text()
    change = changes(before, after)["strict"]["all"]
    assert (
        f"| **strict** | {change.before:.3f} | {change.after:.3f} | +{change.difference:.3f} |"
        in text
    )
    assert "| strict, counting |" in text
    assert "| diversity | 0.300 | 0.280 | -0.020 |  |  |" in text
    assert "8 s (sample 40 %, score 20 %, learn 40 %)" not in text
    assert "10 s (sample 40 %, score 20 %, learn 40 %)" in text
    assert "peak memory: 2.50 GB" in text
    for path in ("eval_000000.png", "eval_000060.png", "strip.png", "curves.png", "000060"):
        assert path in text
    assert f'rlfactory sample {folder.path} --prompt "..."' in text
    assert text.startswith("# my_run\n\n2 iterations of training.")


def test_a_run_that_was_interrupted_says_so(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    write_summary(folder.summary, before=pair()[0], after=None, metrics=[])
    text = folder.summary.read_text()
    assert "stopped before it was evaluated again" in text
    assert "nothing was measured" in text
    assert "| strict |" in text
    assert "Advice" not in text


def test_advice_stands_in_it(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    write_summary(folder.summary, before=pair()[0], after=None, metrics=[], advice=["go slow"])
    assert "## Advice\n\n- go slow\n\n## Cost" in folder.summary.read_text()


def test_only_what_exists_is_pointed_to(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    assert len(where_to_look(folder)) == 1
    folder.grid(0).write_text("")
    folder.curves.write_text("")
    assert [line.split(":")[0] for line in where_to_look(folder)][:2] == ["samples", "curves"]
