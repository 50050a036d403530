"""The tables of other libraries' names, and the examples of the pages on migrating."""

import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest

from rlfactory.config.peers.files import translate_file

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "migrating"
DOCS = str(ROOT / "scripts" / "docs")
sys.path.insert(0, DOCS)
names = importlib.import_module("names")
migrating = importlib.import_module("migrating")
sys.path.remove(DOCS)
EXAMPLES = [
    ("trl", "yaml", 1),
    ("flow_factory", "yaml", 1),
    ("flow_grpo", "json", 32),
    ("ddpo_pytorch", "json", 8),
]


def test_each_subject_of_names_is_a_table() -> None:
    text = names.tables()
    assert text.count("| there | library | here | what differs |") == len(names.subjects())
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == sum(len(rows) for rows in names.subjects().values())


@pytest.mark.parametrize("page", migrating.PEERS)
def test_a_library_s_options_are_a_table(page: str) -> None:
    text = migrating.flags(page)
    assert f"<!-- generated: migrating.flags {page} -->" in (PAGES / f"{page}.md").read_text()
    assert all(f"\n| `{row.name}` | " in text for row in migrating.rows_of(*migrating.PEERS[page]))
    assert all(f"\n| `{name}` | " in text for name in migrating.PRESETS[page])


@pytest.mark.parametrize(("page", "language", "gpus"), EXAMPLES)
def test_an_example_becomes_the_command_below_it(
    page: str, language: str, gpus: int, tmp_path: Path
) -> None:
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    before, after = text.split(f"```{language}\n", 1)[1].split("```", 1)
    file = tmp_path / f"config.{language}"
    file.write_text(before)
    command = re.search(r"```bash\nrlfactory (.*)\n```", after)
    assert command is not None
    assert translate_file(str(file), gpus).command() == shlex.split(command[1])


def test_every_peer_of_the_table_has_names() -> None:
    for peers in migrating.PEERS.values():
        assert [*migrating.rows_of(*peers)]
