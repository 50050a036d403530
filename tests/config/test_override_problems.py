"""Options that do not exist: other spellings, hub ids and files, several at once."""

from pathlib import Path

import pytest

from rlfactory.config.override_problems import explain_option, words_together
from rlfactory.config.overrides import compose
from rlfactory.config.problems import fix_command


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("algo=GRPO", "algo=grpo"),
        ("model=SD35", "model=sd35"),
        ("reward=PickScore", "reward=pickscore"),
        ("reward=jpeg_compressibility", "reward=compressibility"),
        ("precision=bfloat16", "precision=bf16"),
        ("algo=grpo-guard", "algo=grpo_guard"),
        ("reward=shapes,hps", "reward=combine 'reward.of=[shapes,hps]'"),
        ("reward=shapes+hps", "reward=combine 'reward.of=[shapes,hps]'"),
        ("logger=wandb+tensorboard", "logger=several 'logger.of=[wandb,tensorboard]'"),
        ("prompts=x.txt", "prompts=file prompts.path=x.txt reward=compressibility"),
    ],
)
def test_options_in_other_words(
    word: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("a red circle\n")
    (problem,) = compose([word]).problems
    assert fix_command(problem, ["check", word]) == f"rlfactory check {command}"


def test_a_multirun_is_still_told() -> None:
    (problem,) = compose(["reward=shapes,hps"]).problems
    assert "rlfactory -m reward=shapes,hps" in problem.message
    assert compose(["algo=grpo,nft"]).problems[0].fix == "rlfactory -m algo=grpo,nft"


def test_other_words_are_compared_with_the_options() -> None:
    assert explain_option("reward", "shpes", ["shapes"]).fix == "reward=shapes"
    assert explain_option("reward", "nonsense", ["shapes"]).fix == "rlfactory list reward"
    assert words_together("algo", ["grpo", "nft"], ["grpo", "nft"]) is None
    assert words_together("reward", ["a", "b"], ["a"]) is None


def test_a_prompt_is_no_option() -> None:
    problem = explain_option("prompts", "a red circle", ["shapes"])
    assert "'a red circle' is a prompt" in problem.message
    assert "a list of prompts" in problem.message
    assert problem.fix == ""
