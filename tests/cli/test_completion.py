"""Shell completion, after a subcommand and for options in subfolders too."""

import pytest

from rlfactory.cli.completion import complete_option, without_subcommand


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rlfactory algo=grpo_", ["algo=grpo_guard", "algo=grpo_token"]),
        ("rlfactory experiment=peer/n", ["experiment=peer/nft"]),
        ("rlfactory algo=nft experiment=peer/tempf", ["experiment=peer/tempflow"]),
        ("rlfactory algo=zzz", []),
        ("rlfactory algo", None),
        ("rlfactory algo.clip_range=", None),
        ("rlfactory algo=nft ", None),
    ],
)
def test_options_of_a_group(line: str, expected: list[str] | None) -> None:
    assert complete_option(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rlfactory check algo=n", "rlfactory algo=n"),
        ("rlfactory evaluate RUN seed=1 evaluation.", "rlfactory seed=1 evaluation."),
        ("rlfactory -m algo=nft see", "rlfactory algo=nft see"),
        ("rlfactory che", "rlfactory che"),
        ("rlfactory check ", "rlfactory "),
        ("rlfactory", "rlfactory"),
    ],
)
def test_what_hydra_is_asked(line: str, expected: str) -> None:
    assert without_subcommand(line) == expected


@pytest.mark.parametrize(
    ("line", "query", "expected"),
    [
        (
            "rlfactory check experiment=peer/mix",
            "bash",
            "experiment=peer/mix experiment=peer/mix_flash",
        ),
        ("rlfactory experiment=peer/mix", "fish", "experiment=peer/mix\nexperiment=peer/mix_flash"),
        ("rlfactory explain seed experiment=peer/nft algo.be", "bash", "algo.beta="),
        ("rlfactory group_s", "bash", "group_size="),
    ],
)
def test_the_shell_is_answered(
    line: str, query: str, expected: str, command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    shown = command("-sc", f"query={query}")
    assert (shown.returncode, shown.stdout.strip()) == (0, expected), shown.stderr


def test_the_shell_gets_a_script(command) -> None:
    shown = command("-sc", "install=bash")
    assert shown.returncode == 0, shown.stderr
    assert "hydra_bash_completion" in shown.stdout
