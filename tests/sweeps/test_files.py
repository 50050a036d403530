"""Every sweep that ships, in both sizes: its header and its numbers. test_tiny_is_full.py plans."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfactory.config.options import packaged_folder
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import override_key
from rlfactory.report.claims import rises
from rlfactory.report.measure import planned_passes
from rlfactory.report.read import RunRecord
from rlfactory.sweep.jobs import columns_of, rows_of
from rlfactory.sweep.sweep_file import read_sheet
from rlfactory.sweep.table import Column, Job, Table, TableInfo

FILES = {path.stem: path for path in sorted(packaged_folder("sweeps").glob("*.yaml"))}
SIZES = ("full", "tiny")
CLAIMED = yaml.safe_load((Path(__file__).parent / "claimed.yaml").read_text())["tables"]
MEASURES = re.compile(
    r"(eval|before|last|max)/[\w/]+|mean/[\w.*+/]+|plan/(rollout|train|all)|iterations"
)
ROW_KEYS = {"name", "before", "overrides", "full", "tiny", "stages", "claimed", "note", "axes"}
ROW_KEYS |= {"method", "task", "differs"}


@cache
def content(name: str) -> dict[str, Any]:
    node = yaml.safe_load(FILES[name].read_text())
    assert isinstance(node, dict)
    return node


def runs(name: str, size: str) -> Iterator[tuple[str, list[str]]]:
    """Each row's stages, of the first seed, as they are typed: the last word of a key counts."""
    sheet = content(name)
    for row in sheet["rows"]:
        stages = row.get("stages", [[]])
        stages = stages[size] if isinstance(stages, dict) else stages
        if row.get(size, ()) is None or not row.keys() & {"overrides", size, "stages"}:
            continue
        common = [*sheet["sizes"][size], *row.get("overrides", []), *row.get(size, [])]
        for number, stage in enumerate(stages, start=1):
            words = [*common, *stage, f"seed={sheet['seeds'][size][0]}"]
            yield f"{row['name']}, {number}", [*{override_key(w): w for w in words}.values()]


def header(name: str) -> str:
    lines = FILES[name].read_text().splitlines()
    comment = lines[: next(i for i, line in enumerate(lines) if not line.startswith("#"))]
    return " ".join(line.removeprefix("#").strip() for line in comment)


@pytest.mark.parametrize("name", FILES)
def test_it_has_what_a_sweep_has(name: str) -> None:
    sheet = content(name)
    assert sheet.keys() <= {
        *(
            "about",
            "columns",
            "sizes",
            "seeds",
            "rows",
            "axes",
            "search",
            "claims",
            "tasks",
            "differs",
        )
    }
    TableInfo(**sheet["about"])
    names = [row["name"] for row in sheet["rows"]]
    slugs = {re.sub(r"[^a-z0-9.]+", "-", row.lower()).strip("-.") for row in names}
    assert len(slugs) == len(names)
    assert [*sheet["sizes"]] == [*sheet["seeds"]] == [*SIZES]
    for row in sheet["rows"]:
        assert row.keys() <= ROW_KEYS
        assert row.keys() & {"overrides", *SIZES, "claimed", "before"}
        assert row.get("before", names[0]) in names
        assert row.get("claimed", {}).keys() <= sheet["columns"].keys()


@pytest.mark.parametrize("name", FILES)
def test_its_columns_are_measured(name: str) -> None:
    for key, node in content(name)["columns"].items():
        own = [node[size] for size in SIZES if size in node]
        measured = [m["measure"] if isinstance(m, dict) else m for m in own]
        assert all(MEASURES.fullmatch(measure) for measure in measured), key
        Column(key, measure="", **{k: v for k, v in node.items() if k not in SIZES})
    assert any("tiny" in node for node in content(name)["columns"].values())


@pytest.mark.parametrize("name", FILES)
def test_a_stand_in_has_its_own_label_and_scale(name: str) -> None:
    """What the tiny form measures otherwise never stands under a published name."""
    sheet = read_sheet(FILES[name])
    published = {node["label"] for node in content(name)["columns"].values()}
    of_size = {size: {c.name: c for c in columns_of(sheet, size)} for size in SIZES}
    for key, column in of_size["tiny"].items():
        full = of_size["full"].get(key)
        if full is None:
            assert key.endswith("_stand_in")
            assert column.label not in published
            assert column.scale == 1.0
        elif column.measure:
            assert column.measure == full.measure, key
    claimed = {key for row in content(name)["rows"] for key in row.get("claimed", {})}
    rewards = [w for w in sheet.sizes["tiny"] if w.startswith(("reward=", "reward.of="))]
    if claimed and rewards:  # the same name, and another sum
        measured = {c.measure for k, c in of_size["tiny"].items() if k in claimed}
        assert "eval/combined" not in measured


@pytest.mark.parametrize("name", FILES)
def test_its_header_says_what_its_data_say(name: str) -> None:
    about, told = content(name)["about"], header(name)
    hours = about["gpu_hours"]
    assert told.startswith(about["title"])
    assert f"Paper: {about['paper']}; {about['table']}." in told
    budget = "unknown" if hours is None else f"{hours} GPU-hours"
    assert f"Budget of the full form: {budget} (" in told
    assert f"Run here: {about['ran']}" in told
    assert f"Tolerance: {about['tolerance']}" in told


@pytest.mark.parametrize("name", FILES)
def test_the_tiny_form_is_small(name: str) -> None:
    jobs = [words for _, words in runs(name, "tiny")]
    small = ("model=tiny_", "experiment=trlx_randomwalks", "model=smollm2")
    assert all(any(w.startswith(small) for w in words) for words in jobs if words)
    # the leaderboard has 11 methods on 3 tasks
    assert len(jobs) <= (33 if name == "leaderboard" else 30)


@pytest.mark.parametrize("table", CLAIMED, ids=lambda table: f"{table['sweep']}: {table['from']}")
def test_it_claims_what_was_published(table: dict[str, Any]) -> None:
    sheet = content(table["sweep"])
    claimed = {row["name"]: row.get("claimed", {}) for row in sheet["rows"]}
    for name, numbers in table["rows"].items():
        pairs = zip(table["columns"], numbers, strict=True)
        expected = {key: value for key, value in pairs if value is not None}
        found = {key: claimed[name][key] for key in table["columns"] if key in claimed[name]}
        assert found == expected, name


@pytest.mark.parametrize("name", FILES)
def test_its_claims_hold_in_the_published_numbers(name: str) -> None:
    sheet = read_sheet(FILES[name])
    columns = {column.name: column for column in columns_of(sheet, "full")}
    claimed = {line.name: line.claimed for line in sheet.rows}
    for claim in sheet.claims:
        column, margin = columns[claim.score], claim.margin_of("full")
        for first, second in claim.pairs:
            ours = claimed[first].get(claim.score)
            other = claimed.get(str(second), {}).get(claim.score)
            if ours is None or other is None:
                continue
            ahead = ours - other if rises(claim, column) else other - ours
            holds = abs(ahead) <= margin if claim.kind == "equal" else ahead > -margin - 1e-9
            assert holds, f"{claim.text}: {ours} and {other}"
            assert ahead != 0 or margin, claim.text


def test_claims_are_said_once() -> None:
    for name, path in FILES.items():
        texts = [claim.text for claim in read_sheet(path).claims]
        assert len(texts) == len({*texts}), name


def test_every_table_that_was_named_is_there() -> None:
    assert FILES.keys() >= {
        *("ddpo", "ddpo_walkthrough", "flow_grpo", "flow_grpo_fast", "grpo_guard", "tempflow"),
        *("dance_grpo", "mix_grpo", "nft", "awm", "vgrpo_stages"),
        *(f"vgrpo_table{i}" for i in range(1, 7)),
        *(f"vgrpo_figure{i}" for i in range(4, 12)),
        *("gpt2_testbed", "gpt2_gae", "gpt2_negative", "gpt2_changes"),
        *("openai_sentiment", "trl_legacy", "trl_v2", "trlx_sentiments", "trlx_randomwalks"),
    }


def published(table: str) -> dict[str, dict[str, float]]:
    """The published numbers of a table by row and column."""
    return {row["name"]: row.get("claimed", {}) for row in content(table)["rows"]}


@pytest.mark.parametrize(
    ("row", "table", "of"),
    [
        ("FLUX.1-dev", "vgrpo_table2", "FLUX.1-dev"),
        ("FLUX, BranchGRPO", "vgrpo_table2", "BranchGRPO"),
        ("FLUX, MixGRPO", "vgrpo_table2", "MixGRPO"),
        ("FLUX, V-GRPO", "vgrpo_table2", "V-GRPO, 16 steps"),
        ("SD 3.5 M", "vgrpo_table3", "SD 3.5 M"),
        ("SD 3.5 M, DiffusionNFT", "vgrpo_table3", "DiffusionNFT"),
        ("SD 3.5 M, V-GRPO", "vgrpo_table3", "V-GRPO"),
    ],
)
def test_the_rewards_of_table_1_are_plain_means(row: str, table: str, of: str) -> None:
    column = "flux" if table == "vgrpo_table2" else "sd35"
    numbers = {k: v for k, v in published(table)[of].items() if k not in ("rollout", "train")}
    mean = sum(numbers.values()) / len(numbers)
    assert published("vgrpo_table1")[row][column] == pytest.approx(mean, abs=0.0051)
    measure = content("vgrpo_table1")["columns"][column]["full"]
    terms = {re.split(r"[*/]", term)[-1] for term in measure.removeprefix("mean/").split("+")}
    assert {term.removesuffix("_strict") for term in terms} == numbers.keys()


def test_the_evaluations_of_table_5_are_means_over_its_stages() -> None:
    rows = published("vgrpo_table5")
    stages = [(r["steps"], r["nfe"]) for name, r in rows.items() if name.endswith(": V-GRPO")]
    steps = sum(n for n, _ in stages)
    assert steps == rows["all, V-GRPO"]["steps"] == 580
    mean = sum(n * nfe for n, nfe in stages) / steps
    assert rows["all, V-GRPO"]["nfe"] == pytest.approx(mean, abs=0.05)
    trained = published("vgrpo_table1")["SD 3.5 M, V-GRPO"]["train"]
    assert trained == pytest.approx((mean - 40) / 2, abs=0.05)


def test_the_plan_counts_the_evaluations_of_v_grpo_as_published() -> None:
    for row, words in runs("vgrpo_table5", "full"):
        if "V-GRPO" in row:
            run = RunRecord(Path(row), "done", plan_from_words(*words).config)
            name = row.rpartition(",")[0]
            # the penalty asks the old policy for 10 predictions beside its surrogate
            penalty = 10 if name == "5, OCR: V-GRPO" else 0
            nfe = published("vgrpo_table5")[name]["nfe"]
            assert planned_passes([run], "all") == nfe + penalty


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FILES)
def test_the_table_of_a_size_can_be_read_again(name: str, size: str, tmp_path: Path) -> None:
    sheet = read_sheet(FILES[name])
    rows = rows_of(sheet)
    job = Job("first", rows[0].name, "first", [])
    table = Table(name, size, sheet.about, columns_of(sheet, size), rows, [job], sheet.claims)
    table.save(tmp_path)
    assert Table.load(tmp_path) == table
