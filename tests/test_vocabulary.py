"""Names and words that were replaced by the field's terms do not come back."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORMER = {
    "CHANGELOG.md",
}
"""Where former names are listed."""

MODULES = re.findall(
    r"\w+",
    """
    advantage arguments beginning border completion cost crossings dealing estimate explain fault
    following help inspection interruption isolated joining keeping keyed launch learner listing
    mendable multirun multirun_problems nest older on_run overlap parted parts pillow placement
    problems rank ranks request resume sameness sampler saying scoring session settings shares
    shipped showing signature source state suspicion syncing targets trained trainer typecheck
    worker zoo
    """,
)
NAMES = re.findall(
    r"\w+",
    """
    Adviser Asked CommonError Deal EVALUATED Gathering HANDED_OVER Interruptible Keeper
    LostError MENDABLE NO_MATTER NO_RESULT PARTED Placement Sitting Standing Taken Watcher appraise
    begun_in everyones frozen_problems hardware_of holds_nodes import_from_here impossible_sweep
    is_to_launch own_rows shipped_folder told_apart with_parts
    """,
)
WORDS = [
    "sittings?",
    "mendable",
    "dealt out",
    "is worth nothing",
    "what it is of",
    "take[sn]? up again",
]

FILES = [
    name
    for name in subprocess.run(
        [
            "git",
            "ls-files",
            "src",
            "conf",
            "docs",
            "tests",
            "scripts",
            "README.md",
            "pyproject.toml",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    if Path(name).suffix in {".py", ".yaml", ".md", ".toml", ".j2", ".html"}
    and name not in {*FORMER, Path(__file__).relative_to(ROOT).as_posix()}
]
CONTENT = {
    name: (ROOT / name).read_text(encoding="utf-8") for name in FILES if (ROOT / name).is_file()
}


def found(pattern: str, *, below: str = "") -> list[str]:
    regex = re.compile(pattern)
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in CONTENT.items()
        if name.startswith(below) and regex.search(text)
        for number, line in enumerate(text.splitlines(), start=1)
        if regex.search(line)
    ]


def test_no_former_module_is_named() -> None:
    modules = "|".join(MODULES)
    assert found(rf"\brlfactory\.({modules})\b|src/rlfactory/({modules})(\.py|/)") == []


@pytest.mark.parametrize("name", NAMES)
def test_no_former_name_is_used(name: str) -> None:
    assert found(rf"(?<!\")\b{name}\b(?!\")") == []


@pytest.mark.parametrize("word", WORDS)
def test_no_retired_word_is_in_the_package(word: str) -> None:
    assert found(rf"\b{word}\b", below="src/") + found(rf"\b{word}\b", below="docs/") == []
