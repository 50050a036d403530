"""What README and docs say is true: commands run, links lead somewhere, the example works."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from rlfactory import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUICK = ("check", "list", "explain", "sweep", "--cfg")


def commands(text: str) -> list[str]:
    """The `rlfactory ...` lines of a page's shell blocks, without comments."""
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("rlfactory")]


def words(line: str) -> list[str]:
    return shlex.split(line, comments=True)[1:]


# a line that pages comment upon in several ways is one
LINES = {
    shlex.join(words(line)): line
    for page in PAGES
    for line in commands(page.read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("line", sorted(LINES.values()))
def test_every_command_is_accepted(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = words(line)
    own = ("redness", "/data/", "mine", "RUN", "outputs/", " -m ")
    if any(word in line for word in own) or arguments[:1] in (["sample"], ["evaluate"], ["--cfg"]):
        pytest.skip("needs a run, a file of one's own or Hydra's own main: tested elsewhere")
    if "hardware=deepspeed" in line and find_spec("deepspeed") is None:
        pytest.skip("needs a package that is not installed")
    if arguments[:1] == ["sweep"]:
        arguments = list(dict.fromkeys([*arguments, "--plan"])) if arguments[1:] else arguments
    quick = arguments and arguments[0] in QUICK
    assert cli.dispatch(arguments if quick else ["check", *arguments]) == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_mistake_is_shown_as_it_is(capsys: pytest.CaptureFixture[str], command) -> None:
    example = re.search(r"```console\n\$ rlfactory (.*?)\n(.*?)```", README, re.DOTALL)
    assert example is not None
    shown = command(*words(f"rlfactory {example[1]}"))
    assert shown.returncode == 2
    assert shown.stderr == example[2]


@pytest.mark.parametrize("door", ["import path", "folder"])
def test_the_reward_in_fifteen_lines(door: str, tmp_path: Path, command) -> None:
    source = re.search(r"```python\n(# redness.py.*?)```", README, re.DOTALL)
    assert source is not None
    (tmp_path / "redness.py").write_text(source[1])
    typed = next(line for line in commands(README) if "redness.Redness" in line)
    arguments = ["check", *words(typed)]
    if door == "folder":
        folder = tmp_path / "myconf" / "reward"
        folder.mkdir(parents=True)
        text = "# @package _global_\n# Red pictures\nreward:\n  _target_: redness.Redness\n"
        (folder / "redness.yaml").write_text(f"{text}  scale: 2.0  # 0 or more\n")
        arguments = ["check", "-cd", "myconf", "reward=redness", "trust=[redness]"]
    shown = command(*arguments)
    assert shown.returncode == 0, shown.stderr
