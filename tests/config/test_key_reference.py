"""What keys mean."""

from pathlib import Path

import pytest

from rlfactory.config.key_reference import (
    argument_text,
    comments,
    file_reference,
    key_reference,
    root_file,
)
from rlfactory.config.overrides import compose

CONF = Path(__file__).parents[2] / "conf"


def test_every_root_key_says_what_it_means() -> None:
    found = file_reference(root_file())
    assert len(found) > 70
    short = [key for key, reference in found.items() if len(reference.meaning.split()) < 2]
    assert short == []
    assert [k for k, r in found.items() if "as above" in r.meaning or r.meaning == "the same"] == []


def test_comments_of_every_option_can_be_read() -> None:
    for path in sorted(CONF.glob("*/*.yaml")):
        assert all(key and "#" not in comment[:1] for key, comment in comments(path).items()), path


@pytest.mark.parametrize(
    ("key", "words", "lines"),
    [
        (
            "optimizer.lr",
            [],
            ["learning rate; auto: learning_rate.lora or .full, as model.finetune says",
             "a number; default auto"],
        ),
        (
            "evaluation.every",
            [],
            ["iterations between evaluations; 0: only before and after",
             "a whole number >= 0; default 0"],
        ),
        (
            "dynamics.noise_level",
            ["algo=grpo"],
            ["a; published: 0.7 for SD3.5, 0.9 for FLUX.", "a number > 0; default 1.0"],
        ),
        (
            "regularizer.coefficient.value",
            ["regularizer=kl_v"],
            ["coefficient in the loss, 0 or more", "a number >= 0; default 0.0001"],
        ),
        ("ema", [], ["the weight set that is evaluated: ema <- d ema + (1 - d) policy"]),
    ],
)  # fmt: skip
def test_references(key: str, words: list[str], lines: list[str]) -> None:
    composed = compose(words)
    assert key_reference(key, composed.values, composed.choices).lines() == lines


def test_groups_list_their_options() -> None:
    composed = compose([])
    assert (
        "options: awm, branch_grpo, cispo, cppo, crd, dapo, ddpo"
        in key_reference("algo", composed.values, composed.choices).kind
    )


def test_docstrings_are_read_where_a_file_has_no_comment() -> None:
    assert argument_text("rlfactory.config.key_reference.KeyReference", "kind") == (
        "the values that are allowed, in words."
    )
    assert argument_text("rlfactory.config.key_reference.KeyReference", "nothing") == ""
    assert argument_text("rlfactory.nowhere.Class", "nothing") == ""
