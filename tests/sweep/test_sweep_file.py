"""Reading a sweep's file: what is wrong with it is said by its place in the file."""

from pathlib import Path

import pytest

from rlfactory.config.problems import PlanError
from rlfactory.sweep import command, sweep_file
from rlfactory.sweep.sweep_arguments import read_request
from rlfactory.sweep.sweep_file import file_of, read_sheet, sweeps
from rlfactory.sweep.table import Claim, Table


def test_a_file_is_read_as_it_stands(sheet: Path) -> None:
    found = read_sheet(sheet)
    assert found.about.gpu_hours == 4
    assert [line.name for line in found.rows] == ["SD3.5-M", "V-GRPO, one", "two stages"]
    assert found.rows[1].by_size == {"tiny": ["optimizer.lr=1e-3"]}
    assert found.rows[0].overrides is None
    assert found.seeds == {"full": [0], "tiny": [0, 1]}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("# A small table", "[", "can't be read"),
        ("# A small table", "- a\n---", "can't be read"),
        ("about:", "abuot:", "abuot: is no key of it; known are about"),
        ("title: Small, ", "", "about.title: is missing"),
        ("gpu_hours: 4", "gpu_hours: many", "about.gpu_hours: is 'many', not a number"),
        ("name: two stages", "nam: two stages", "rows.2.nam: is no key of it"),
        ("overrides: [algo=vgrpo]", "overrides: algo=vgrpo", "rows.1.overrides: is 'algo=vgrpo'"),
        ("tiny: [optimizer.lr=1e-3]", "tinny: []", "rows.1.tinny: is no key of it"),
        ("claimed: {shapes: 0.63}", "claimed: {shape: 0.63}", "Did you mean"),
        ("before: V-GRPO, one", "before: V-GRPO", "rows.0.before"),
        ("name: two stages", "name: V-GRPO, one", "two rows are named V-GRPO, one"),
        ("seeds: {full: [0], tiny: [0, 1]}", "seeds: some", "seeds: is 'some'"),
    ],
)
def test_damage_is_named(sheet: Path, old: str, new: str, said: str) -> None:
    text = sheet.read_text()
    assert old in text
    sheet.write_text(text.replace(old, new))
    with pytest.raises(PlanError) as refused:
        read_sheet(sheet)
    assert said in str(refused.value)
    assert "small.yaml" in str(refused.value)


@pytest.mark.parametrize("text", ["", "- a", "7"])
def test_what_is_no_mapping_is_no_sweep(sheet: Path, text: str) -> None:
    sheet.write_text(text)
    with pytest.raises(PlanError, match="not a mapping"):
        read_sheet(sheet)


def test_names_and_paths(monkeypatch: pytest.MonkeyPatch, sheet: Path, tmp_path: Path) -> None:
    monkeypatch.setattr(sweep_file, "packaged_folder", lambda name: sheet.parent)
    assert sweeps() == {"small": sheet}
    assert file_of("small") == file_of(str(sheet)) == sheet
    with pytest.raises(PlanError, match="no sweep smal; known are small. Did you mean small?"):
        file_of("smal")
    with pytest.raises(PlanError, match=r"no file ./smal.yaml"):
        file_of("./smal.yaml")
    with pytest.raises(PlanError, match="no file"):
        file_of("n" * 300 + ".yaml")
    monkeypatch.setattr(sweep_file, "sweeps", dict)
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(sheet.read_text())
    with pytest.raises(PlanError, match="a file is named with its ending") as raised:
        file_of("mine")
    assert raised.value.problems[0].fix == "rlfactory sweep mine.yaml"


CLAIMS = """
claims:
  - {text: it wins, source: Table 1, better: "V-GRPO, one", than: two stages, score: shapes}
  - {text: it learns, better: "V-GRPO, one", than: before, score: shapes}
  - {text: it gets far, higher: two stages, than: 0.9, score: shapes}
  - {text: stages lose nothing, no_worse: two stages, than: SD3.5-M, score: shapes, margin: 0.1}
  - {text: as long, equal: ["V-GRPO, one", 6], score: steps, margin: {full: 10, tiny: 1}}
  - {text: in this order, order: [two stages, "V-GRPO, one", SD3.5-M], score: shapes}
"""


NO_STAND_IN = "claims.0.stand_in: there is no column with a stand-in x"


@pytest.fixture
def claims(sheet: Path) -> Path:
    sheet.write_text(sheet.read_text() + CLAIMS)
    return sheet


def test_all_forms_are_read(claims: Path, tmp_path: Path) -> None:
    found = read_sheet(claims).claims
    assert [claim.kind for claim in found] == [
        *("better", "better", "higher", "no_worse", "equal", "order")
    ]
    assert found[0].pairs == [("V-GRPO, one", "two stages")]
    assert found[4].pairs == [("V-GRPO, one", 6)]
    assert (found[4].margin_of("full"), found[4].margin_of("tiny")) == (10, 1)
    assert found[5].pairs == [("two stages", "V-GRPO, one"), ("V-GRPO, one", "SD3.5-M")]
    about = read_sheet(claims).about
    Table("small", "tiny", about, [], [], [], found).save(tmp_path)
    assert Table.load(tmp_path).claims == found


def test_a_table_without_claims_is_read(tmp_path: Path, sheet: Path) -> None:
    Table("small", "tiny", read_sheet(sheet).about, [], [], []).save(tmp_path)
    path = tmp_path / "sweep.json"
    path.write_text(path.read_text().replace('"jobs": [],\n "claims": []', '"jobs": []'))
    assert "claims" not in path.read_text()
    assert Table.load(tmp_path).claims == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("than: two stages", "than: two stags", "known are SD3.5-M; V-GRPO, one; two stages"),
        ("than: two stages", "than: two stags", "Did you mean two stages?"),
        ("score: shapes}\n  - {text: it l", "score: shape}\n  - {text: it l", "no column shape"),
        ("text: it wins, ", "", "claims.0.text: is missing"),
        ("than: before", "then: before", "claims.1.then: is no key of it"),
        ("than: before, ", "", "claims.1.than: is missing; allowed is a row, before or a number"),
        ("than: before, score: shapes", "than: before, score: steps", "measured by no evaluation"),
        ("higher: two stages, than: 0.9", "higher: two stages", "claims.2.than: is missing"),
        ("higher: two stages, than: 0.9", "text2: a", "claims.2.text2: is no key of it"),
        ("than: 0.9, ", "than: 0.9, margin: 1, ", "claims.2.margin: has no meaning beside higher"),
        (", margin: 0.1", "", "claims.3.margin: is missing; no_worse needs one"),
        ("margin: 0.1", "margin: 0", "claims.3.margin: is 0; allowed is more than 0"),
        ("full: 10, ", "", "allowed is a number for each of full, tiny"),
        ('["V-GRPO, one", 6]', '["V-GRPO, one"]', "claims.4.equal: is ['V-GRPO, one']"),
        ("equal: [", "than: 5, equal: [", "claims.4.than: has no meaning beside equal"),
        ("equal: [", "better: two stages, equal: [", "has better and equal; allowed is exactly"),
        ("equal: [", "order: [", "claims.4.order.1: is"),
        ("order: [two stages, ", "order: [before, ", "begins with before; allowed is a row"),
        ('one", SD3.5-M]', 'one", "V-GRPO, one"]', "compares V-GRPO, one with itself"),
        (
            "score: shapes}\n  - {text: it l",
            "score: shapes, stand_in: x}\n  - {text: it l",
            NO_STAND_IN,
        ),
        ("{better: lower,", "{better: neither,", "neither more nor less is better"),
    ],
)
def test_what_makes_no_sense_is_named(claims: Path, old: str, new: str, said: str) -> None:
    text = claims.read_text()
    assert old in text
    text = text.replace(old, new)
    if "neither" in new:
        text += "  - {text: shorter, better: two stages, than: SD3.5-M, score: steps}\n"
    claims.write_text(text)
    with pytest.raises(PlanError) as refused:
        read_sheet(claims)
    assert said in str(refused.value)


def test_a_claim_without_a_form_names_the_forms(sheet: Path) -> None:
    sheet.write_text(sheet.read_text() + "claims: [{text: it wins, score: shapes}]\n")
    with pytest.raises(PlanError, match="has none; allowed is exactly one of better, higher"):
        read_sheet(sheet)


def test_the_margin_of_a_claim_without_one_is_zero() -> None:
    claim = Claim("it wins", "shapes", better="a", than="b")
    assert claim.margin_of("tiny") == 0.0


def test_the_table_of_a_sweep_has_the_claims_of_its_file(
    claims: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "plans_of", lambda jobs: {})
    asked = command.prepared(read_request([str(claims), "size=tiny"]))
    assert asked.table.claims == read_sheet(claims).claims
