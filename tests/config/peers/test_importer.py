"""The data of other libraries: rows are applied in order, and what is left is told."""

import shlex
from typing import Any

import pytest
import yaml

from rlfactory.config.peers import computed
from rlfactory.config.peers.files import libraries
from rlfactory.config.peers.importer import Translation
from rlfactory.config.peers.values import CONVERSIONS
from rlfactory.utils.dotted_keys import leaves

KNOWN = {
    *("there", "if", "ours", "choices", "by", "default", "other", "type", "untype", "note"),
    *("drop", "refuse", "call", "let", "copy"),
}


def made(content: dict[str, Any], *rows: str) -> Translation:
    given = dict(leaves(content))
    importer = Translation("Flow-Factory", dict(given), given)
    for row in rows:
        importer.apply(yaml.safe_load(row))
    return importer


def test_what_is_left_is_translated_by_name_or_listed() -> None:
    content = {"train": {"learning_rate": 1e-4, "odd": 1, "empty": "", "off": None}, "seed": 3}
    importer = made(content)
    importer.translate_rest(["Flow-Factory"], {"odd": "it is odd"})
    assert importer.command() == ["seed=3", "optimizer.lr=0.0001"]
    assert importer.dropped == {"train.odd": (1, "it is odd")}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("{a: 1}", True),
        ("{a: [2, 1]}", True),
        ("{a: 2}", False),
        ("{a: true}", True),
        ("{a: false}", False),
        ("{none: null}", True),
        ("{a: null}", False),
        ("{a: '>0'}", True),
        ("{a: '>1'}", False),
        ("{a: '!=b.c'}", True),
        ("{a: '!=none'}", False),
        ("{b.d: '~^te'}", True),
        ("{b.d: '~^xt'}", False),
        ("{b.d: text, a: 2}", False),
    ],
)
def test_conditions(condition: str, holds: bool) -> None:
    content = {"a": 1, "b": {"c": 2, "d": "text"}}
    importer = made(content, f"{{if: {condition}, type: 'k={{b.c}}'}}")
    assert importer.command() == (["k=2"] if holds else [])


def test_rows() -> None:
    importer = made(
        {"x": 3, "kind": "Two", "old": 1, "new": 2, "why": 5, "rest": 1, "p_a": 1, "p_b": 2},
        "{there: x, let: {more: value + 1}, type: 'a.b={more}'}",
        "{there: kind, choices: {two: k=2, one: k=1}}",
        "{there: [new, old], ours: 'c={value}'}",
        "{there: why, drop: no reason, note: 'was {value}'}",
        "{there: 'p_*', drop: p}",
        "{type: engine=vllm engine.memory=1}",
        "{untype: engine, drop: none}",
        "{there: absent, default: 7, ours: 'd={value}'}",
        "{let: {low: old + 1, high: low * (p.nowhere or 4)}, type: 'f={low} g={high}'}",
    )
    assert importer.command() == ["k=2", "c=2", "d=7", "f=2", "g=8", "a.b=4"]
    assert importer.notes == ["was 5"]
    dropped = {"why": (5, "no reason"), "p_a": (1, "p"), "p_b": (2, "p")}
    assert importer.dropped == {**dropped, "engine": ("vllm", "none")}
    assert [*importer.left] == ["rest"]


@pytest.mark.parametrize("name", libraries())
def test_rows_are_well_formed(name: str) -> None:
    data = libraries()[name]
    for row in [*data["rows"], *data.get("last", ())]:
        assert row.keys() <= KNOWN, row
        assert row.get("by") is None or row["by"] in CONVERSIONS, row
        assert row.get("call") is None or row["call"] in vars(computed), row
        for formula in row.get("let", {}).values():
            compile(str(formula), name, "eval")


def test_the_text_runs_in_a_shell() -> None:
    made = Translation("Their library")
    made.type("optimizer.betas=[0.9,0.99]", "algo=grpo", "algo=nft", "run_dir=my run")
    made.notes.append("their noise is another one")
    made.drop("a.key", None, "for no reason")
    lines = made.text("file.yaml").splitlines()
    command = [line for line in lines if line and not line.startswith("#")]
    assert shlex.split(" ".join(command)) == [
        "rlfactory", "algo=nft", "run_dir=my run", "optimizer.betas=[0.9,0.99]"
    ]  # fmt: skip
    assert lines[-1] == "#   a.key = null  (for no reason)"
    assert "#   their noise is another one" in lines


def test_long_commands_are_folded() -> None:
    made = Translation("Their library")
    made.type(*(f"key_{i}=value" for i in range(40)))
    lines = made.text("f").splitlines()
    assert max(map(len, lines)) < 120
    assert all(line.endswith("\\") for line in lines[1:-1])
