"""`rlfactory explain` and `rlfactory list GROUP OPTION`."""

import pytest

from rlfactory.cli import app
from rlfactory.config.problems import PlanError


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert app.dispatch(words) == 0
    return capsys.readouterr().out


def test_a_key_with_its_meaning_type_default_and_place(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "explain", "optimizer.lr", "optimizer.lr=0.5").splitlines()
    meaning = "learning rate; auto: learning_rate.lora or .full, as model.finetune says"
    assert lines[:3] == ["optimizer.lr = 0.5", f"  {meaning}", "  a number; default auto"]
    assert lines[3].split("conf/")[1] == "optimizer/adamw.yaml:5"
    assert lines[4] == "  0.5          command line: optimizer.lr=0.5  <- counts"


def test_the_default_of_a_class_lies_beneath(capsys: pytest.CaptureFixture[str]) -> None:
    beneath = "default of rlfactory.algo.grpo_guard.GRPOGuard"
    words = ["explain", "algo.clip_range", "algo=grpo_guard"]
    *_, only = shown(capsys, *words).splitlines()
    assert only.endswith(f" {beneath}  <- counts")
    *_, first, last = shown(capsys, *words, "algo.clip_range=3e-6").splitlines()
    assert first.endswith(beneath)
    assert last == "  3e-6         command line: algo.clip_range=3e-6  <- counts"


def test_the_last_part_of_keys(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "explain", "every")
    assert "evaluation.every = 0" in out
    assert "checkpoint.every = 0" in out


def test_groups_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    group = shown(capsys, "explain", "algo")
    assert group.startswith("algo = nft\n  how rewards become gradients\n  options: awm")
    for words in (["explain", "algo=grpo"], ["explain", "grpo"], ["list", "algo", "grpo"]):
        option = shown(capsys, *words)
        assert option.startswith("algo=grpo  (")
        assert "algo.clip_range: 0.0001  # c: clip of the ratio" in option
    assert "keys: ema.schedule" in shown(capsys, "explain", "ema")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain", "nonsense"], "there is no such key"),
        (["explain", "evaluation.evry"], "Did you mean evaluation.every?"),
        (["explain", "algo=nonsense"], "there is no option nonsense"),
        (["explain", "seed=3"], "sets a key"),
        (["explain", "seed.x"], "known here: none"),
        (["explain", "loss_type"], r"loss_type \(TRL, ms-swift\) is algo=dapo or "),
        (["explain"], "no key named"),
        (["explain", "="], "no key named"),
        (["list", "algo", "nonsense"], "there is no option nonsense"),
    ],
)
def test_what_there_is_not(words: list[str], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        app.dispatch(words)


@pytest.mark.parametrize("typed", ["lora_r", "lora_r=8"])
def test_another_librarys_name_has_its_key_here(typed: str) -> None:
    with pytest.raises(PlanError, match=r"lora_r \(PEFT, TRL, ms-swift\) is .*lora_rank") as found:
        app.dispatch(["explain", typed])
    assert found.value.problems[0].fix == "rlfactory explain model.lora_rank"
