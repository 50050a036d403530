"""Claims in a sweep's file: their forms, and what is said of one that makes no sense."""

from pathlib import Path

import pytest

from rlfactory.config.problems import PlanError
from rlfactory.sweep import command
from rlfactory.sweep.arguments import read_request
from rlfactory.sweep.claims import Claim
from rlfactory.sweep.sweep_file import read_sheet
from rlfactory.sweep.table import Table

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
        ("than: before", "then: before", "claims.1.then: there is no such key"),
        ("than: before, ", "", "claims.1.than: is missing; allowed is a row, before or a number"),
        ("than: before, score: shapes", "than: before, score: steps", "measured by no evaluation"),
        ("higher: two stages, than: 0.9", "higher: two stages", "claims.2.than: is missing"),
        ("higher: two stages, than: 0.9", "text2: a", "claims.2.text2: there is no such key"),
        ("than: 0.9, ", "than: 0.9, margin: 1, ", "claims.2.margin: has no meaning beside higher"),
        (", margin: 0.1", "", "claims.3.margin: is missing; no_worse needs one"),
        ("margin: 0.1", "margin: 0", "claims.3.margin: is 0; allowed is more than 0"),
        ("full: 10, ", "", "allowed is a number for each of full, tiny"),
        ('["V-GRPO, one", 6]', '["V-GRPO, one"]', "claims.4.equal: is ['V-GRPO, one']"),
        ("equal: [", "than: 5, equal: [", "claims.4.than: has no meaning beside equal"),
        ("equal: [", "better: two stages, equal: [", "has better and equal; allowed is exactly"),
        ("equal: [", "order: [", "claims.4.order: is"),
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
