import pytest

from rlfactory.sweep.table import TABLE_FILE, Column, Job, Row, Table, TableInfo

ABOUT = TableInfo(
    "One reward each", "V-GRPO", "Table 6", 400.0, "tiny, three seeds", "order of rows"
)
TABLE = Table(
    name="vgrpo_table6",
    size="tiny",
    about=ABOUT,
    columns=[Column("geneval", "GenEval", "eval/shapes", digits=2)],
    rows=[Row("NFT", {"geneval": 0.98}), Row("V-GRPO", {"geneval": 0.97}, "600 steps")],
    jobs=[Job("nft-s0", "NFT", "nft-s0", ["algo=nft", "seed=0"], {"seed": 0})],
)


def test_a_table_comes_back_as_it_was(tmp_path):
    TABLE.save(tmp_path)
    assert Table.load(tmp_path) == TABLE


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"name": "x", "size": "tiny", "about": {"a": 1}}']
)
def test_what_is_no_table_is_refused(tmp_path, text):
    (tmp_path / TABLE_FILE).write_text(text)
    with pytest.raises(ValueError, match="sweep.json: .*; restore it from a copy"):
        Table.load(tmp_path)


def test_a_folder_without_one_is_told_apart(tmp_path):
    with pytest.raises(FileNotFoundError):
        Table.load(tmp_path)
