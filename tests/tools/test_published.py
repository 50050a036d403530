"""`rlfactory verify RUN --published` on a run as stored, and on others."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rlfactory.cli.app import dispatch
from rlfactory.config.overrides import plan_from_words
from rlfactory.run.folder import RunFolder
from rlfactory.tools import published as module
from rlfactory.tools.published import published, recorded

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
WORDS = ("hardware=cpu", "iterations=1", "schedule.steps=2", "prompts_per_iteration=1")
SMALL = (*WORDS, "group_size=2", "evaluation.prompts=2", "evaluation.grid=2")


@pytest.fixture(scope="module")
def run(undrawn: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("published") / "run"
    assert dispatch([*SMALL, f"run_dir={path}"]) == 0
    return path


@pytest.fixture
def stored(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is stored of the run, which stands alone in a file of its own."""
    monkeypatch.setattr(module, "FILE", tmp_path / "published.json")
    return store(recorded(run, SMALL))


def store(row: dict[str, Any]) -> dict[str, Any]:
    module.FILE.write_text(json.dumps([row]))
    return row


def verified(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = dispatch(["verify", str(run), "--published"])
    output = capsys.readouterr()
    return code, output.out + output.err


@pytest.mark.slow
def test_a_run_has_its_own_bits(
    run: Path, stored: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(stored["lines"]) == 3
    assert [len(scores) > 0 for scores in stored["scores"]] == [True, True]
    assert verified(run, capsys)[0] == 0
    store({**stored, "lines": stored["lines"][:2], "weights": None})
    code, said = verified(run, capsys)
    assert (code, "verified: 2 lines of metrics, of 2 that are stored" in said) == (0, True)


@pytest.mark.slow
def test_another_bit_is_named(
    run: Path, stored: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    store({**stored, "weights": "0"})
    assert verified(run, capsys) == (
        1,
        f"{run} differs from the published run, first in weights.safetensors\n",
    )
    first, _, last = stored["lines"]
    store({**stored, "lines": [first, "0", last], "versions": {"torch": "1.0"}})
    code, said = verified(run, capsys)
    assert code == 1
    assert "first in line 2 of metrics.jsonl" in said
    assert "torch: 1.0 then" in said


@pytest.mark.slow
def test_a_run_of_another_configuration_is_no_published_one(
    run: Path, stored: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    store({**stored, "words": [*SMALL, "seed=3"]})
    code, said = verified(run, capsys)
    assert code == 1
    assert "seed: 3 -> 0" in said
    assert RunFolder(run).read_status() == "done"


def test_what_is_stored_is_portable_and_stands_in_the_readme() -> None:
    for row in published():
        config = plan_from_words(*row.words).config
        assert config["hardware"]["portable"] is True
        (line,) = re.findall(rf"^\| {config['seed']} \| (.*) \|$", README, re.MULTILINE)
        names = ("eval/shapes_strict/mean", "eval/shapes/mean", "eval/diversity")
        strict, soft, diversity = ([scores[name] for scores in row.scores] for name in names)
        before, after, change, *others = line.split(" | ")
        assert [before, after] == [f"{score:.3f}" for score in strict]
        assert change.startswith(f"{strict[1] - strict[0]:+.3f} (")
        assert others == [" → ".join(f"{x:.3f}" for x in pair) for pair in (soft, diversity)]
        assert row.weights is not None
        assert row.lines
