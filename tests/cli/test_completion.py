"""What the shell is told when somebody presses the tab key."""

import pytest

from rlfactory.cli.completion import completions


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rlfactory algo=grpo_", ["algo=grpo_guard", "algo=grpo_token"]),
        ("rlfactory check experiment=peer/n", ["experiment=peer/nft"]),
        ("rlfactory algo=nft experiment=peer/tempf", ["experiment=peer/tempflow"]),
        ("rlfactory algo=zzz", []),
        ("rlfactory algo.clip_range=", []),
        ("rlfactory -m algo=nft see", ["seed="]),
        ("rlfactory evaluate RUN seed=1 evaluation.s", ["evaluation.seed=", "evaluation.steps="]),
        ("rlfactory optim", ["optimizer=", "optimizer."]),
        ("rlfactory algo=grpo,nft optimizer.l", ["optimizer.lr="]),
    ],
)
def test_options_and_keys(line: str, expected: list[str]) -> None:
    assert set(expected) <= set(completions(line))
    assert bool(expected) == bool(completions(line))


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
    line: str, query: str, expected: str, here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    shown = here("-sc", f"query={query}")
    assert (shown.returncode, shown.stdout.strip()) == (0, expected), shown.stderr


def test_the_shell_gets_a_script(here) -> None:
    shown = here("-sc", "install=bash")
    assert shown.returncode == 0, shown.stderr
    assert "hydra_bash_completion" in shown.stdout
