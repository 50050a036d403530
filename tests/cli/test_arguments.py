"""The help page, and folders as they are typed."""

import shlex
from pathlib import Path

import pytest

from rlfactory.cli import app
from rlfactory.cli.arguments import command_table, parsed, show_help
from rlfactory.cli.run_commands import DECODING_KEYS, EVALUATION_KEYS
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.config.schema.root import GROUPS
from rlfactory.utils.text import typed_path

COMMANDS = command_table()["words"]


def test_every_group_has_a_line_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_help() == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    for group in GROUPS:
        (line,) = [words for words in lines if words[0] == group]
        assert len(line) > 2


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_a_help_of_their_own(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([command, "--help"], ["help", command]):
        assert app.dispatch(words) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"usage: rlfactory {command}")
        assert f"  rlfactory {command}" in shown.partition("examples")[2]
        assert max(map(len, shown.splitlines())) <= 110


def test_training_has_the_overview(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.dispatch(["train", "--help"]) == 0
    assert "rlfactory COMMAND --help" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "list", "explain", "sweep"])
def test_examples_run(command: str) -> None:
    for example in COMMANDS[command]["examples"]:
        assert app.dispatch(example.split()) == 0


def test_what_may_be_left_out_is_not_said_to_be_required(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        app.dispatch(["resume"])
    assert capsys.readouterr().err.endswith("the following arguments are required: RUN\n")


def test_the_help_of_an_evaluation_names_all_that_it_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_help("evaluate")
    shown = " ".join(capsys.readouterr().out.split())
    for key in (*EVALUATION_KEYS, *DECODING_KEYS, "model.path"):
        assert key in shown


@pytest.mark.parametrize("command", ["export", "report"])
def test_what_is_suggested_of_a_folder_that_begins_like_a_flag_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_from_words("model=tiny_gpt2", "run_dir=-run")
    (run := tmp_path / "-run").mkdir()
    (run / "config.yaml").write_text(plan.frozen())
    (run / "STATUS").write_text("failed")
    with pytest.raises(PlanError) as refused:
        app.dispatch([command, "./-run"])
    (problem,) = refused.value.problems
    typed = shlex.split(problem.fix or problem.message.partition("type rlfactory ")[2])
    name, *words = typed[problem.fix.startswith("rlfactory") :]
    assert parsed(name, words).run == run


def test_a_path_is_kept_as_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    typed = ("runs/a", "~/a", "./a", "./-a")
    assert [*map(str, map(typed_path, typed))] == [
        *("runs/a", "/home/me/a", "a", str(Path.cwd() / "-a")),
    ]
