"""docs/results says what the sweeps' files and its own tables say."""

import math
import re
from pathlib import Path

import pytest
from scipy.stats import spearmanr

from rlfactory.sweep.jobs import columns_of
from rlfactory.sweep.sweep_file import read_sheet, sweeps
from rlfactory.utils.markdown import plain

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGES = [name for name in sweeps() if (RESULTS / f"{name}.md").is_file()]
EARLIER = "**Measured with an earlier form"


def text(name: str) -> str:
    return (RESULTS / f"{name}.md").read_text(encoding="utf-8")


def table(name: str) -> list[dict[str, str]]:
    """The rows of a page's main table, by head."""
    lines = [line for line in text(name).split("\n\n- ")[-2].splitlines() if line.startswith("|")]
    cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_columns_of_its_sweep(name: str) -> None:
    """So a stand-in is under its own label, and never beside a paper's number."""
    sheet = read_sheet(sweeps()[name])
    claimed = {key for line in sheet.rows for key in line.claimed}
    heads = ["row"]
    for column in columns_of(sheet, "tiny"):
        label = plain(column.label)
        heads += [f"{label}: paper"] if column.name in claimed else []
        if column.measure or column.name not in claimed:
            heads += [f"{label}: ours" if column.name in claimed else label]
    line = next(line for line in text(name).splitlines() if line.startswith("| row |"))
    found = [head.strip() for head in line.split("|")[1:-1]]
    if EARLIER in text(name):
        heads = [head for head in heads if head in found]  # columns may be newer than the runs
    assert found[: found.index("n")] == heads


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_its_sweep_says(name: str) -> None:
    about = read_sheet(sweeps()[name]).about
    assert f"- Run here: {plain(about.ran)}\n" in text(name)
    assert f"- Expected: {plain(about.tolerance)}\n" in text(name)


def test_the_rank_correlation_is_over_all_rows() -> None:
    rows = table("gpt2_negative")
    both = [(row["end (RA): paper"], row["end (RA), positive"]) for row in rows]
    pairs = [(float(a), float(b)) for a, b in both if "–" not in (a, b)]
    assert len(pairs) == 26
    correlation = spearmanr(*zip(*pairs, strict=True)).statistic
    half = 1.96 / math.sqrt(len(pairs) - 3)
    low, high = (math.tanh(math.atanh(correlation) + sign * half) for sign in (-1, 1))
    said = f"is {correlation:.2f} (95 % {low:.2f} to {high:.2f}"
    assert said == "is 0.24 (95 % -0.16 to 0.57"
    assert said in text("gpt2_negative")


def test_the_gpus_form_of_dance_grpo_has_half_of_the_updates() -> None:
    lines = {line.name: line for line in read_sheet(sweeps()["dance_grpo"]).rows}
    assert "updates_per_iteration=1" in (lines["FLUX, 8 GPUs"].by_size["tiny"] or [])
