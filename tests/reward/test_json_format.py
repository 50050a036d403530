import json
import random

import pytest
import torch

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.json_format import TYPES, JSONFormat, NoJSONError, is_type, parse

VALUES = ["a", "", 3, -1.5, 1e300, True, False, None, [], [1, [2]], {}, {"a": {"b": None}}]
NONE = [
    *("", " ", "{", "}", "{'a': 1}", '{"a": 1,}', "[1 2]", '{"a": 1} and', '{"a": 1}{"b": 2}'),
    *(
        "NaN",
        "[Infinity]",
        "-Infinity",
        "01",
        "1.",
        "tru",
        '"a',
        "\ufeff1",
        "{1: 2}",
        "[" * 100_000,
    ),
]


def score(reward, *texts):
    samples = Samples(["x"] * len(texts), [{}] * len(texts), torch.arange(len(texts)), texts=texts)
    scores = reward.score(samples)
    check_scores(reward, scores, len(texts))
    return scores["json"].tolist()


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("style", [{}, {"indent": 2}, {"separators": (",", ":")}], ids=str)
def test_what_python_writes_is_json(value, style):
    text = f"\n {json.dumps(value, **style)}\t"
    assert score(JSONFormat(), text) == [1]


@pytest.mark.parametrize("text", NONE, ids=lambda text: repr(text[:20]))
def test_what_is_none(text):
    reward = JSONFormat()
    assert score(reward, text) == [0]
    with pytest.raises(NoJSONError):
        parse(text)


def test_a_text_that_was_cut_or_grew_is_none():
    draw = random.Random(0)
    for _ in range(200):
        text = json.dumps({"k": draw.choice(VALUES), "m": [draw.random()] * draw.randrange(3)})
        cut = draw.randrange(len(text))
        assert score(JSONFormat(), text, text[:cut], f"{text}{draw.choice('x]},')}") == [1, 0, 0]


def test_long_and_deep_ones():
    assert score(JSONFormat(), "9" * 100_000, "[" * 100 + "]" * 100) == [1, 1]
    assert score(JSONFormat(), "[" * 200_000 + "]" * 200_000) == [0]


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("a", {"string"}),
        (2, {"integer", "number"}),
        (2.0, {"number"}),
        (True, {"boolean"}),
        (None, {"null"}),
        ([], {"array"}),
        ({}, {"object"}),
    ],
)
def test_types_are_those_of_json(value, names):
    assert {name for name in TYPES if is_type(parse(json.dumps(value)), name)} == names | {"any"}
    for name in TYPES:
        expected = float(name in names or name == "any")
        assert score(JSONFormat(root=name), json.dumps(value)) == [expected]


PERSON = {"name": "string", "age": "integer"}
CASES = {
    '{"name": "a", "age": 3}': (1, 1),
    '{"age": 3, "more": 0, "name": "a"}': (1, 1),
    '{"name": "a"}': (0, 0.5),
    '{"name": 1, "age": 3}': (0, 0.5),
    '{"name": null, "age": "3"}': (0, 0),
    "{}": (0, 0),
    '["name", "age"]': (0, 0),
    '"name age"': (0, 0),
    '{"name": "a", "age": 3': (0, 0),
}


def test_keys_and_their_types():
    strict, share = zip(*CASES.values(), strict=True)
    assert score(JSONFormat(keys=PERSON), *CASES) == [*strict]
    assert score(JSONFormat(keys=PERSON, partial="keys"), *CASES) == [*share]
    assert score(JSONFormat(keys=["name", "age"]), *CASES) == [1, 1, 0, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("partial", ["none", "keys"])
def test_other_keys_may_be_refused(partial):
    reward = JSONFormat(keys=PERSON, other_keys=False, partial=partial)
    assert score(reward, *CASES)[:2] == [1, 0]


def test_credit_grows_with_each_key_that_is_right():
    keys = [f"k{i}" for i in range(5)]
    texts = [json.dumps(dict.fromkeys(keys[:n])) for n in range(6)]
    found = score(JSONFormat(keys=keys, partial="keys"), *texts)
    assert found == pytest.approx([n / 5 for n in range(6)])


def test_a_fence_is_taken_off_where_it_may_be():
    texts = [
        "```json\n[1]\n```",
        "\n```\n[1]\n```\n",
        "[1]",
        "```json\n[1]",
        "so:\n```json\n[1]\n```",
    ]
    assert score(JSONFormat(), *texts) == [0, 0, 1, 0, 0]
    assert score(JSONFormat(fenced=True), *texts) == [1, 1, 1, 0, 0]


def test_whether_it_parses_is_told_too():
    samples = Samples(["x"] * 3, [{}] * 3, torch.arange(3), texts=["[]", "{}", "{"])
    scores = JSONFormat(root="object").score(samples)
    assert scores["json"].tolist() == [0, 1, 0]
    assert scores["json_parsed"].tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"root": "dict"}, r"^reward\.root=dict is no type of JSON; allowed: any, string"),
        ({"keys": {"a": "str"}}, r"^reward\.keys\.a=str is no type of JSON"),
        ({"root": "array", "keys": ["a"]}, r"^reward\.root=array .*reward\.root=object"),
        ({"partial": "keys"}, r"type reward\.keys="),
        ({"other_keys": False, "keys": []}, r"type reward\.keys="),
    ],
)
def test_options_that_mean_nothing(options, message):
    with pytest.raises(RewardError, match=message):
        JSONFormat(**options)


def compare(reward, *pairs):
    texts, answers = zip(*pairs, strict=True)
    metadata = [{"answer": answer} for answer in answers]
    samples = Samples(["0 "] * len(texts), metadata, torch.arange(len(texts)), texts=texts)
    scores = reward.score(samples)
    check_scores(reward, scores, len(texts))
    return scores["json"].tolist()


def test_the_value_must_equal_that_of_the_prompt():
    reward = JSONFormat(answer_column="answer", fenced=True)
    right = [
        ('{"b": [1, 2], "a": null}', {"a": None, "b": [1, 2.0]}),
        ('```json\n{"a": 1e0}\n```', '{"a": 1}'),
        ("true", True),
        ('"x"', '"x"'),
        ("7" * 5000, "7" * 5000),
    ]
    assert compare(reward, *right) == [1] * len(right)
    wrong = [
        ("1", True),
        ("[1, 2]", [2, 1]),
        ('{"a": 1}', {"a": 1, "b": 2}),
        ('"1"', 1),
        ("1e99999999999999999999", 1),
        ("no", 1),
    ]
    assert compare(reward, *wrong) == [0] * len(wrong)


def test_a_sample_without_a_value_to_compare_has_no_score():
    missing, right = compare(JSONFormat(answer_column="answer"), ("1", None), ("1", 1))
    assert missing != missing
    assert right == 1


@pytest.mark.parametrize("answer", [None, "", "{", "word"])
def test_answers_that_are_not_json_are_refused(answer):
    with pytest.raises(RewardError, match="its answer is"):
        JSONFormat(answer_column="answer").check_prompts([Prompt("x", {"answer": answer})])
    JSONFormat(answer_column="answer").check_prompts([Prompt("x", {"answer": {"a": 1}})])


@pytest.mark.parametrize(
    "options", [{"keys": ["a"]}, {"root": "array"}, {"keys": ["a"], "partial": "keys"}]
)
def test_a_comparison_has_no_other_requirements(options):
    with pytest.raises(RewardError, match="leave out"):
        JSONFormat(answer_column="answer", **options)
