"""Samples as coloured text."""

from dataclasses import replace

import pytest
import torch

from rlfactory.tools.inspect.analysis import Survey
from rlfactory.tools.inspect.texts import page, samples

from .conftest import SAMPLES, WIDTH, Words


def test_best_and_worst_samples_come_with_all_of_their_tokens(survey: Survey) -> None:
    found = samples(survey, Words())
    assert [sample["score"] for sample in found] == pytest.approx([0.9, 0.3, 0.1])
    assert [sample["kind"] for sample in found] == ["best"] * 3
    assert all(len(sample["tokens"]) == WIDTH - 10 for sample in found)
    many = replace(survey, scores=torch.arange(float(SAMPLES)))
    assert [(s["kind"], s["score"]) for s in samples(many, Words())] == [
        *(("best", 3.0), ("best", 2.0), ("best", 1.0)),
        ("worst", 0.0),
    ]


def test_a_token_knows_how_much_likelier_it_became(survey: Survey) -> None:
    first = samples(survey, Words())[0]
    number = 2
    rows = survey.base.sample == number
    expected = (survey.tuned.next - survey.base.next)[rows, -1] / torch.log(torch.tensor(2.0))
    assert [t["change"] for t in first["tokens"]] == pytest.approx(expected.tolist(), rel=1e-5)
    assert first["tokens"][0]["text"] == Words().decode([10])
    assert first["prompt"].startswith(" wonderful great")


def test_the_page_colours_tokens_and_escapes_them() -> None:
    tokens = [{"text": "<b>", "change": 2.0}, {"text": "x\n", "change": -1.0}]
    sample = {"kind": "best", "score": 0.5, "prompt": "a & b", "tokens": tokens}
    html = page({"samples": [sample]}, "run <1>", "good is high", ["lens"])
    assert "Inside run &lt;1&gt;" in html
    assert "Best sample, score 0.500" in html
    assert "<b>a &amp; b</b>" in html
    assert "var(--up) 100%" in html
    assert "var(--down) 50%" in html
    assert 'title="×4">&lt;b&gt;</span>' in html
    assert "x⏎" in html
    assert 'src="lens.png"' in html
