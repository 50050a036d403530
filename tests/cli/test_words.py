"""Words as users of other libraries type them."""

from pathlib import Path

import pytest

from rlfactory.cli.words import plain_words, refuse_config_files
from rlfactory.config.problems import PlanError


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        (["train", "algo=grpo"], ["algo=grpo"]),
        (["--algo=grpo", "--learning-rate=1e-4"], ["algo=grpo", "learning_rate=1e-4"]),
        (["--learning_rate", "1e-4", "seed=1"], ["learning_rate=1e-4", "seed=1"]),
        (["--cfg", "job", "--multirun"], ["--cfg", "job", "--multirun"]),
        (["--config-dir=mine", "-cd", "x"], ["--config-dir=mine", "-cd", "x"]),
        (["--flag", "--other=1"], ["--flag", "other=1"]),
        (["prompts.path=a.jsonl"], ["prompts.path=a.jsonl"]),
        (["evaluate", "RUN", "--best", "x"], ["evaluate", "RUN", "--best", "x"]),
        (["sweep", "mine.yaml", "--plan"], ["sweep", "mine.yaml", "--plan"]),
        ([], []),
    ],
)
def test_plain_words(typed: list[str], plain: list[str]) -> None:
    assert plain_words(typed) == plain


@pytest.mark.parametrize(
    ("word", "file"),
    [
        ("ff.yaml", "ff.yaml"),
        ("--config=config/dgx.py:geneval_sd3", "config/dgx.py:geneval_sd3"),
        ("config=a.py", "a.py"),
        ("--config_file=a.json", "a.json"),
    ],
)
def test_files_are_imported(
    word: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = tmp_path / file.partition(":")[0]
    written.parent.mkdir(exist_ok=True)
    written.touch()
    with pytest.raises(PlanError) as refused:
        refuse_config_files(plain_words(["train", "seed=1", word]))
    assert refused.value.problems[0].fix == f"rlfactory import {file}"


def test_a_file_that_is_not_there_is_not_called_one() -> None:
    with pytest.raises(PlanError, match=r"there is no file nosuch\.yaml"):
        refuse_config_files(["nosuch.yaml"])
