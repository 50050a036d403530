"""What docs/results stores is of the columns and rows that the sweeps' files have."""

import json
import math
from pathlib import Path

import pytest
from scipy.stats import spearmanr

from rlfactory.sweep.jobs import columns_of
from rlfactory.sweep.sweep_file import read_sheet, sweeps

RESULTS = Path(__file__).parents[2] / "docs" / "results"
STORED = [name for name in sweeps() if (RESULTS / f"{name}.json").is_file()]


def stored(name: str) -> dict[str, list[list[str]]]:
    table: dict[str, list[list[str]]] = json.loads((RESULTS / f"{name}.json").read_text())["table"]
    return table


@pytest.mark.parametrize("name", STORED)
def test_a_table_has_the_columns_of_its_sweep(name: str) -> None:
    """So a stand-in is under its own label, and never beside a paper's number."""
    sheet = read_sheet(sweeps()[name])
    claimed = {key for line in sheet.rows for key in line.claimed}
    heads = ["row"]
    for column in columns_of(sheet, "tiny"):
        heads += [f"{column.label}: paper"] if column.name in claimed else []
        if column.measure or column.name not in claimed:
            heads += [f"{column.label}: ours" if column.name in claimed else column.label]
    found: list[str] = [*map(str, stored(name)["heads"])]
    if not (RESULTS / f"{name}.png").is_file():  # of an earlier form: columns may be newer
        heads = [head for head in heads if head in found]
    assert found[: found.index("n")] == heads


def test_the_rank_correlation_is_over_all_rows() -> None:
    table = stored("gpt2_negative")
    rows = [dict(zip(map(str, table["heads"]), line, strict=True)) for line in table["lines"]]
    both = [(row["end (RA): paper"], row["end (RA), positive"]) for row in rows]
    pairs = [(float(a), float(b.split(" ±")[0])) for a, b in both if "–" not in (a, b)]
    assert len(pairs) == 26
    correlation = spearmanr(*zip(*pairs, strict=True)).statistic
    half = 1.96 / math.sqrt(len(pairs) - 3)
    low, high = (math.tanh(math.atanh(correlation) + sign * half) for sign in (-1, 1))
    said = f"is {correlation:.2f} (95 % {low:.2f} to {high:.2f}"
    assert said in read_sheet(sweeps()["gpt2_negative"]).about.ran


def test_the_gpus_form_of_dance_grpo_has_half_of_the_updates() -> None:
    lines = {line.name: line for line in read_sheet(sweeps()["dance_grpo"]).rows}
    assert "updates_per_iteration=1" in (lines["FLUX, 8 GPUs"].by_size["tiny"] or [])
