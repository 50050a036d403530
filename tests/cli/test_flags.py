"""Words as users of other libraries type them."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.cli.flags import plain_words, refuse_config_files
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
        (["sweep", "--plan", "mine.yaml"], ["sweep", "--plan", "mine.yaml"]),
        (["serve", "--port", "80", "reward=x"], ["serve", "port=80", "reward=x"]),
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


Command = Callable[..., subprocess.CompletedProcess[str]]
Refused = Callable[..., str]


@pytest.mark.parametrize(
    "words",
    [
        ["experiment=mine", "-cd", "conf", "--cfg", "job"],
        ["-cd", "conf", "--cfg", "job", "experiment=mine"],
        ["--cfg=job", "experiment=mine", "--config-dir=conf"],
    ],
    ids=str,
)
def test_a_folder_and_flags_in_any_order(here: Command, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    text = "# @package _global_\niterations: 3\n"
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(text)
    shown = here(*words)
    assert shown.returncode == 0, shown.stderr
    assert "\niterations: 3\n" in f"\n{shown.stdout}"


@pytest.mark.parametrize(
    ("words", "said", "fix"),
    [
        (["--dry-run", "seed=1"], "is no flag here: rlfactory check prints", "rlfactory --help"),
        (["--hydra-help"], "--hydra-help: is no flag here", "rlfactory --help"),
        (["--config-name", "mine"], "--config-name: is no flag here", "rlfactory --help"),
        (["-cn=mine", "seed=1"], "-cn: is no flag here: experiment=NAME", "rlfactory --help"),
        (["--config-path", "conf"], "-cd FOLDER adds a folder", "rlfactory --help"),
        (
            ["-m", "hydra/launcher=joblb", "seed=1,2"],
            "hydra/launcher: there is no launcher joblb",
            "hydra/launcher=joblib",
        ),
        (["--info"], "--info: is no flag here: rlfactory explain", "rlfactory --help"),
    ],
    ids=str,
)
def test_one_message_of_ours(refused: Refused, words: list[str], said: str, fix: str) -> None:
    shown = refused(*words)
    assert said in shown
    assert fix in shown.splitlines()[-1]
    assert not any(word in shown for word in ("usage:", "unrecognized", "Traceback"))


def test_the_line_that_makes_keys_the_roots_counts_at_the_top(
    refused: Refused, tmp_path: Path
) -> None:
    (tmp_path / "conf" / "algo").mkdir(parents=True)
    text = "# Mine\n# @package _global_\ndefaults:\n  - override /times: uniform\n"
    (tmp_path / "conf" / "algo" / "mine.yaml").write_text(text)
    shown = refused("check", "-cd", "conf", "algo=mine")
    assert "mine.yaml needs the first line # @package _global_" in shown


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("iterations: 3\n", "mine.yaml needs the first line # @package _global_"),
        (
            "# @package _global_\ndefaults:\n  - override /algo: grpoo\n",
            "algo: there is no option grpoo, which the defaults of a chosen file name",
        ),
    ],
)
def test_files_of_experiments(refused: Refused, tmp_path: Path, content: str, said: str) -> None:
    folder = tmp_path / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(content)
    shown = refused("check", "-cd", "conf", "experiment=mine")
    assert said in shown
    assert "Config search path" not in shown
