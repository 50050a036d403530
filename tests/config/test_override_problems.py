"""Options that do not exist: other spellings, hub ids and files, several at once."""

from pathlib import Path
from typing import Any

import pytest

from rlfactory.config.override_problems import explain_option, explain_unknown, words_together
from rlfactory.config.overrides import compose, plan_from_words
from rlfactory.config.problems import PlanError, Problem, fix_command


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


CONFIG: dict[str, Any] = {
    "iterations": 40,
    "max_minutes": None,
    "prompt_cache": "folder",
    "checkpoint": {"every": 0, "best": True},
    "evaluation": {"every": 0},
    "optimizer": {"_target_": "torch.optim.AdamW", "lr": 1e-4},
    "algo": {"_target_": "rlfactory.algo.nft.NFT", "beta": 1.0},
}


def explained(key: str, value: str | None = "3") -> Problem:
    group, dot, _ = key.partition(".")
    known = CONFIG.get(group, {}) if dot else CONFIG
    return explain_unknown(key, value, key, known, CONFIG)


@pytest.mark.parametrize(
    ("key", "value", "instead"),
    [
        ("lr", "1e-4", ("optimizer.lr=1e-4",)),
        ("algo.lr", "1e-4", ("optimizer.lr=1e-4",)),
        ("best", "false", ("checkpoint.best=false",)),
        ("num_generations", "8", ("group_size=8",)),
        ("algo.num_generations", "8", ("group_size=8",)),
        ("algo.lora_path", "run", ("begin_from=run",)),
        ("adapter_name_or_path", "run", ("begin_from=run",)),
        ("model.peft_model", "run", ("begin_from=run",)),
        ("model.learning_rate", "1e-4", ("optimizer.lr=1e-4",)),
        ("log_prob_of", "full", ("dynamics=cps", "dynamics.log_prob_of=full")),
    ],
)
def test_a_key_of_another_place_is_named(key: str, value: str, instead: tuple[str, ...]) -> None:
    assert explained(key, value).instead == instead


def test_several_places_are_listed() -> None:
    problem = explained("every")
    assert "one of checkpoint.every, evaluation.every" in problem.message
    assert (problem.fix, problem.instead) == ("rlfactory explain every", None)


@pytest.mark.parametrize("key", ["max_minutess", "algo.bta", "iteratons", "checkpoint.evry"])
def test_misspelt_keys_are_corrected_at_their_place(key: str) -> None:
    assert "Did you mean" in explained(key).message


@pytest.mark.parametrize("key", ["num_iterations_", "nonsense"])
def test_nothing_is_guessed_from_afar(key: str) -> None:
    problem = explained(key)
    assert (problem.fix, problem.instead) == ("", None)
    assert "Did you mean" not in problem.message


def test_another_algorithm_of_the_same_name_does_not_take_the_place_of_a_choice() -> None:
    (problem,) = compose(["algo=nft", "cliprange_value=0.2"]).problems
    assert problem.candidates
    assert all("algo=nft" not in words for words in problem.candidates)


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["algo=grpo", "window.size=2"], ("window=random_contiguous", "window.size=2")),
        (["algo.clip_range=1e-4"], ("algo=grpo", "algo.clip_range=1e-4")),
        (["optimizer.amsgrad=true"], ("+optimizer.amsgrad=true",)),
        (["+lr=1e-4"], ("optimizer.lr=1e-4",)),
        (["learning_rate=1e-4"], ("optimizer.lr=1e-4",)),
    ],
)
def test_keys_of_other_options(words: list[str], instead: tuple[str, ...]) -> None:
    assert compose(words).problems[0].instead == instead


def test_a_model_by_its_path_keeps_the_option_that_is_typed() -> None:
    (problem,) = compose(["model=gpt2", "model_name_or_path=owner/chat"]).problems
    assert problem.instead == ("model.path=owner/chat",)


def test_a_value_for_a_key_with_keys_of_its_own() -> None:
    with pytest.raises(PlanError) as refused:
        plan_from_words("stop=10")
    (problem,) = refused.value.problems
    assert "allowed is a mapping of kl, reward" in problem.message
    assert problem.fix == "rlfactory explain stop"
