"""Reading a sweep's file: what is wrong with it is said by its place in the file."""

from pathlib import Path

import pytest

from rlfactory.config.problems import PlanError
from rlfactory.sweep import sweep_file
from rlfactory.sweep.sweep_file import file_of, read_sheet, sweeps


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
        ("about:", "abuot:", "abuot: there is no such key; known here: about"),
        ("title: Small, ", "", "about.title: is missing"),
        ("gpu_hours: 4", "gpu_hours: many", "about.gpu_hours: is 'many'; allowed is a number"),
        ("name: two stages", "nam: two stages", "rows.2.nam: there is no such key"),
        ("overrides: [algo=vgrpo]", "overrides: algo=vgrpo", "rows.1.overrides: is 'algo=vgrpo'"),
        ("tiny: [optimizer.lr=1e-3]", "tinny: []", "rows.1.tinny: there is no such key"),
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
    with pytest.raises(PlanError, match="holds no mapping"):
        read_sheet(sheet)


def test_names_and_paths(monkeypatch: pytest.MonkeyPatch, sheet: Path) -> None:
    monkeypatch.setattr(sweep_file, "packaged_folder", lambda name: sheet.parent)
    assert sweeps() == {"small": sheet}
    assert file_of("small") == file_of(str(sheet)) == sheet
    with pytest.raises(PlanError, match="no sweep smal; known are small. Did you mean small?"):
        file_of("smal")
    with pytest.raises(PlanError, match=r"no file ./smal.yaml"):
        file_of("./smal.yaml")
    with pytest.raises(PlanError, match="no file"):
        file_of("n" * 300 + ".yaml")
