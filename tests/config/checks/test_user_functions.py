"""The user's own functions are judged by reading them: nothing of theirs runs."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlfactory.config.checks.user_functions import require_callable_functions
from rlfactory.utils.live_objects import live_objects

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
BY_NAME = {"function_arguments": ("prompts", "completions"), "passes_by_name": True}
BY_PLACE = {"function_arguments": ("images", "prompts", "metadata")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def fault(
    spec: str, own: dict[str, Any], metadata: tuple[str, ...] | None = ()
) -> tuple[str, str] | None:
    """The message and the fix for a reward with this function."""
    config = {"reward": {"function": spec}, "prompts": {}, "eval_rewards": {}}
    traits = {"reward": own, "prompts": {"metadata": metadata}}
    found = [*require_callable_functions(config, traits)]
    assert len(found) < 2
    return (found[0].message, found[0].fix) if found else None


@pytest.mark.parametrize(
    "spec",
    [
        *("own.py:good", "own:good", "./own.py:few", "own.py:optional", "own.py:later"),
        *(
            "own.py:within",
            "own.py:decorated",
            "own.py:Callable",
            "own.py:made",
            "own.py:json",
            "math:sqrt",
        ),
        *("os.path:join", "object:reward", "???"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_can_be_called_by_name(spec: str) -> None:
    assert fault(spec, BY_NAME) is None
    assert "own" not in sys.modules


@pytest.mark.parametrize("name", ["seen", "any_place", "long_enough", "pictures"])
@pytest.mark.usefixtures("folder")
def test_what_can_be_called_by_position(name: str) -> None:
    assert fault(f"own.py:{name}", BY_PLACE) is None


@pytest.mark.parametrize(
    ("spec", "said", "fix"),
    [
        ("zzzz.py:good", "there is no file zzzz.py", ""),
        ("owm.py:good", "there is no file owm.py", "reward.function=own.py:good"),
        ("owm.py:other", "there is no file owm.py", ""),
        ("nowhere.module:good", "there is no module nowhere.module", ""),
        ("good", "there is no module good", ""),
        ("own.py", "own.py names no function; own.py has good, few", "reward.function=own.py:good"),
        ("own.good", "is neither package.module:name nor", "reward.function=own:good"),
        ("own.py:god", "own.py has no god", "reward.function=own.py:good"),
        ("own.py:number", "number is 3, not a function", "reward.function=own.py:good"),
        ("own.py:needs", "takes answer, and these prompts bring prompts, completions", ""),
        ("own.py:by_place", "takes prompts by position only", ""),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_can_not_be_called_by_name(spec: str, said: str, fix: str) -> None:
    message, remedy = fault(spec, BY_NAME) or ("", "")
    assert said in message
    assert remedy == fix


@pytest.mark.parametrize("name", ["short", "long", "keyword"])
@pytest.mark.usefixtures("folder")
def test_what_can_not_be_called_by_position(name: str) -> None:
    message, _ = fault(f"own.py:{name}", BY_PLACE) or ("", "")
    assert "is called with (images, prompts, metadata)" in message


@pytest.mark.parametrize(
    ("function", "own", "said"),
    [
        (lambda prompts, completions, **columns: [], BY_NAME, ""),
        (lambda completions, answer=None: [], BY_NAME, ""),
        (lambda prompts, answer: [], BY_NAME, "<lambda> takes answer, and these prompts bring"),
        (lambda images, prompts, metadata: [], BY_PLACE, ""),
        (lambda *arguments: [], BY_PLACE, ""),
        (lambda images: [], BY_PLACE, "is called with (images, prompts, metadata)"),
        (max, BY_PLACE, ""),
    ],
)
def test_a_live_function_is_judged_by_its_signature(
    function: Callable[..., object], own: dict[str, Any], said: str
) -> None:
    with live_objects({"reward": function}):
        found = fault("object:reward", own)
    assert (found is None) if not said else (found is not None and said in found[0])


@pytest.mark.parametrize(
    ("metadata", "is_fine"), [(("answer",), True), (None, True), (("other",), False)]
)
@pytest.mark.usefixtures("folder")
def test_columns_come_with_the_prompts(metadata: tuple[str, ...] | None, is_fine: bool) -> None:
    assert (fault("own.py:needs", BY_NAME, metadata) is None) == is_fine


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def f(:", "is no Python: invalid syntax in line 1"),
        ("import nowhere_at_all\ndef f(prompts): ...", "imports nowhere_at_all"),
        ("from nowhere_at_all.x import y\ndef f(prompts): ...", "imports nowhere_at_all"),
        ("import sys\nsys.path.append('x')\nimport nowhere_at_all\ndef f(prompts): ...", ""),
        ("try:\n  import nowhere_at_all\nexcept ImportError: ...\ndef f(prompts): ...", ""),
        ("from json import *", ""),
    ],
)
def test_files_that_can_not_be_imported(folder: Path, source: str, said: str) -> None:
    (folder / "other.py").write_text(source)
    found = fault("other.py:f", BY_NAME)
    assert (found is None) if not said else (found is not None and said in found[0])
