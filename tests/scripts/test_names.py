"""The pages of other libraries' names and of migration are current, and their examples run."""

import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest

from rlfactory.config.peers.files import translate_file

ROOT = Path(__file__).parents[2]
DOCS = str(ROOT / "scripts" / "docs")
sys.path.insert(0, DOCS)
names = importlib.import_module("names")
migrating = importlib.import_module("migrating")
sys.path.remove(DOCS)
EXAMPLES = [
    ("trl", "yaml", 1),
    ("flow_factory", "yaml", 1),
    ("flow_grpo", "python", 1),
    ("ddpo_pytorch", "python", 8),
]


def test_the_page_of_names_is_not_stale() -> None:
    assert names.PART.stale() == names.PART.fresh(), "python scripts/docs/names.py writes it anew"


@pytest.mark.parametrize("page", migrating.PARTS)
def test_the_pages_of_migration_are_not_stale(page: str) -> None:
    part = migrating.PARTS[page]
    assert part.stale() == part.fresh(), "python scripts/docs/migrating.py writes it anew"


@pytest.mark.parametrize(("page", "language", "gpus"), EXAMPLES)
def test_an_example_becomes_the_command_below_it(
    page: str, language: str, gpus: int, tmp_path: Path
) -> None:
    text = migrating.PARTS[page].stale()
    before, after = text.split(f"```{language}\n", 1)[1].split("```", 1)
    file = tmp_path / ("config.py" if language == "python" else "config.yaml")
    file.write_text(before)
    function = re.search(r"def (\w+)", before)
    source = f"{file}:{function[1]}" if language == "python" and function else str(file)
    command = re.search(r"```bash\nrlfactory (.*)\n```", after)
    assert command is not None
    assert translate_file(source, gpus).command() == shlex.split(command[1])


def test_every_peer_of_the_table_has_names() -> None:
    for peers in migrating.PEERS.values():
        assert [*migrating.rows_of(*peers)]
