"""The user's own functions are judged by reading them: nothing of theirs runs."""

import sys
from pathlib import Path

import pytest

from rlfactory.config.checks.data import require_functions

SOURCE = """
import json
raise RuntimeError("imported")
def good(prompts, completions, **columns): ...
def few(completions): ...
def needs(prompts, completions, answer): ...
def optional(prompts, completions, answer=None, *, weight=1.0): ...
def by_place(prompts, /, completions): ...
async def later(prompts, completions): ...
@json.loads
def decorated(anything, at, all): ...
if json:
    def within(prompts, completions): ...
class Callable: ...
number = 3
made = json.loads("1")
pictures = lambda images, prompts, metadata: []
def seen(images, prompts, metadata): ...
def any_place(*arguments): ...
def short(images): ...
def long(images, prompts, metadata, more): ...
def long_enough(images, prompts, metadata, more=1): ...
def keyword(images, prompts, metadata, *, more): ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def fault(spec: str) -> tuple[str, str] | None:
    """The message and the fix for a reward with this function."""
    config = {"reward": {"function": spec}, "prompts": {}, "eval_rewards": {}}
    found = [*require_functions(config, {"reward": {}, "prompts": {}})]
    assert len(found) < 2
    return (found[0].message, found[0].fix) if found else None


FINE = """
own.py:good own:good ./own.py:few own.py:later own.py:within own.py:decorated own.py:Callable
own.py:made own.py:json own.py:pictures math:sqrt os.path:join object:reward ???
"""


@pytest.mark.parametrize("spec", FINE.split())
@pytest.mark.usefixtures("folder")
def test_what_is_there(spec: str) -> None:
    assert fault(spec) is None
    assert "own" not in sys.modules


@pytest.mark.parametrize(
    ("spec", "said", "fix"),
    [
        ("zzzz.py:good", "there is no file zzzz.py", ""),
        ("owm.py:good", "there is no file owm.py", "reward.function=own.py:good"),
        ("nowhere.module:good", "there is no module nowhere.module", ""),
        ("good", "there is no module good", ""),
        ("own.py", "names no function; it has good, few", "reward.function=own.py:good"),
        ("own.good", "is neither package.module:name nor", "reward.function=own:good"),
        ("own.py:god", "own.py has no god", "reward.function=own.py:good"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_is_not_there(spec: str, said: str, fix: str) -> None:
    message, remedy = fault(spec) or ("", "")
    assert said in message
    assert remedy == fix


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def f(:", "is no Python: invalid syntax in line 1"),
        ("from json import *", ""),
        ("def g(): ...", "it has g"),
    ],
)
def test_other_files(folder: Path, source: str, said: str) -> None:
    (folder / "other.py").write_text(source)
    found = fault("other.py:f")
    assert (found is None) if not said else (found is not None and said in found[0])
