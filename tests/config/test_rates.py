"""The learning rate follows what is trained, unless it is typed."""

from typing import Any

import pytest

from rlfactory.config.overrides import compose, override_frozen, plan_from_words


def rates(*words: str) -> tuple[Any, Any]:
    values = compose(words).values
    return values["optimizer"]["lr"], values["model"].get("value_lr")


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        ("", 1e-4),
        ("model=sd35", 3e-4),
        ("model=sd35 model.finetune=full", 1e-5),
        ("model=sd35 model.finetune=full optimizer=muon", 1e-5),
        ("model=sd35 model.finetune=full optimizer.lr=7e-6", 7e-6),
        ("model=sd35 learning_rate.full=2e-6 model.finetune=full", 2e-6),
        ("model=sd35 algo=grpo_guard", 1e-4),
        ("model=sd35 algo=grpo_guard model.finetune=full", 1e-5),
        ("experiment=peer/dance", 1e-5),
        ("experiment=peer/dance model.finetune=lora", 3e-4),
        ("experiment=peer/dance model.finetune=lora optimizer=muon", 3e-4),
        ("experiment=arithmetic", 3e-4),
        ("experiment=gpt2_negative", 8e-6),
        ("experiment=gpt2_negative optimizer.lr=auto", 1e-5),
        ("model=gpt2", 1e-5),
        ("model=gpt2 model.finetune=lora", 1e-4),
        ("model=gpt2 algo=sft", 2e-5),
        ("model=gpt2 algo=sft model.finetune=lora", 2e-4),
        ("model=gpt2 algo=dpo model.finetune=lora", 5e-6),
        ("model=qwen3", 3e-5),
        ("model=qwen3 model.finetune=full", 1e-6),
        ("model=tiny_gpt2", 1e-3),
        ("model=tiny_sd3 optimizer._target_=torch.optim.SGD", 1e-4),
    ],
)
def test_the_rate_is_of_what_is_trained(words: str, rate: float) -> None:
    assert rates(*words.split())[0] == rate


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        ("model=gpt2", 1e-4),
        ("model=gpt2 model.value_path=folder", 1e-5),
        ("model=gpt2 model.value_lr=3e-5", 3e-5),
        ("model=gpt2 model.value_lr=null", None),
        ("experiment=gpt2_negative", 8e-5),
    ],
)
def test_a_value_head_and_a_critic_have_their_own(words: str, rate: float | None) -> None:
    assert rates(*words.split())[1] == rate


def test_a_replaced_rate_is_noted() -> None:
    (note,) = compose(["experiment=peer/dance", "model.finetune=lora"]).notes
    assert note == "optimizer.lr=0.0003, of model.finetune=lora: 1e-05 is stated for full"


def test_a_frozen_rate_stays() -> None:
    frozen = {**compose(["model=sd35", "model.finetune=full"]).values, "choices": {}}
    assert override_frozen(frozen, ["iterations=3"]).values["optimizer"]["lr"] == 1e-5
    assert override_frozen(frozen, ["optimizer.lr=auto"]).values["optimizer"]["lr"] == 1e-5


@pytest.mark.parametrize(
    ("words", "is_noted"),
    [
        ("model.finetune=lora optimizer.lr=1e-5 iterations=10", True),
        ("model.finetune=lora optimizer.lr=1e-5 iterations=1000", False),
        ("model.finetune=lora iterations=1", False),
        ("optimizer.lr=1e-8 iterations=10", True),
        ("optimizer.lr=1e-8 optimizer._target_=torch.optim.SGD iterations=10", False),
    ],
)
def test_a_rate_at_which_nothing_is_learned_is_noted(words: str, is_noted: bool) -> None:
    rows = plan_from_words("model=gpt2", "algo=grpo_token", *words.split()).derived.values()
    assert any("too little to learn" in row for row in rows) == is_noted
