"""What README and docs say is true: links lead somewhere, the examples work."""

import re
import shlex
from pathlib import Path

import pytest

from rlfactory import api

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
REWARD = (ROOT / "docs" / "extend" / "reward.md").read_text(encoding="utf-8")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if "generated" not in p.parts),
]


def commands(text: str) -> list[str]:
    """The `rlfactory ...` lines of a page's shell blocks, without comments."""
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("rlfactory")]


def words(line: str) -> list[str]:
    return shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
    # the site's build makes docs/reference/generated, and checks links to it
    local = [link for link in links if "://" not in link and "generated/" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_mistake_is_shown_as_it_is(capsys: pytest.CaptureFixture[str], command) -> None:
    example = re.search(r"```console\n\$ rlfactory (.*?)\n(.*?)```", COMMANDS, re.DOTALL)
    assert example is not None
    shown = command(*words(f"rlfactory {example[1]}"))
    assert shown.returncode == 2
    assert shown.stderr == example[2]


def test_a_reward_can_be_named_without_a_file(tmp_path: Path, command) -> None:
    source = re.search(r"```python\n(# my_rewards.py.*?)```", REWARD, re.DOTALL)
    assert source is not None
    (tmp_path / "my_rewards.py").write_text(source[1])
    typed = next(line for line in commands(REWARD) if "reward._target_" in line)
    shown = command("check", *words(typed))
    assert shown.returncode == 0, shown.stderr


def test_readme_is_short_and_its_snippet_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(README.splitlines()) <= 120
    small = ["hardware=cpu", "group_size=2", "evaluation.prompts=2", "evaluation.grid=2"]
    train = api.train
    monkeypatch.setattr(
        api, "train", lambda **given: train(*small, **{**given, "iterations": 1}, run_dir="run")
    )
    monkeypatch.chdir(tmp_path)
    (snippet,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, object] = {}
    exec(snippet, names)
    assert getattr(names["run"], "after", None) is not None
    assert (tmp_path / "redness" / "README.md").is_file()
