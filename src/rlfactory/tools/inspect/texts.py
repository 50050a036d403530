"""The best and the worst sample of the base as HTML: each token coloured by how it changed."""

import math
from html import escape
from typing import Any

from rlfactory.tools.inspect.analysis import Survey
from rlfactory.tools.inspect.figures import factor
from rlfactory.tools.inspect.hooked_model import END
from rlfactory.utils.console import number

COUNT = 3
"""How many of the best and of the worst samples are shown."""


def samples(survey: Survey, tokenizer: Any) -> list[dict[str, Any]]:
    """The best, then the worst samples of the base, each with its tokens.

    A token has its text and `change`: log2 of the factor by which the tuned network makes it
    likelier than the base, at its place in the text.
    """
    known = [i for i, score in enumerate(survey.scores.tolist()) if score == score]
    order = sorted(known, key=lambda i: -float(survey.scores[i]))
    best = order[:COUNT]
    worst = [i for i in order[::-1][:COUNT] if i not in best]
    kinds = [*(("best", i) for i in best), *(("worst", i) for i in worst)]
    return [{"kind": kind, **_sample(survey, tokenizer, i)} for kind, i in kinds]


def _sample(survey: Survey, tokenizer: Any, i: int) -> dict[str, Any]:
    ids, end = survey.texts.ids[i], int(survey.texts.ends[i].nonzero())
    change = (survey.tuned.next - survey.base.next)[survey.base.sample == i, -1] / math.log(2)
    read = ids[survey.texts.read[i]].tolist()
    return {
        "score": float(survey.scores[i]),
        "prompt": "".join(map(tokenizer.decode, _without_end(ids[: end + 1].tolist(), tokenizer))),
        "tokens": [
            {"text": END if t == tokenizer.eos_token_id else tokenizer.decode([t]), "change": c}
            for t, c in zip(read, change.tolist(), strict=True)
        ],
    }


def _without_end(ids: list[int], tokenizer: Any) -> list[list[int]]:
    """Each token by itself, without those that end a text or fill it up."""
    return [[token] for token in ids if token != tokenizer.eos_token_id]


def page(found: dict[str, Any], title: str, subtitle: str, figures: list[str]) -> str:
    """The HTML page of an inspection: the figures, and samples as coloured text."""
    shown: list[dict[str, Any]] = found["samples"]
    reach = max((abs(t["change"]) for s in shown for t in s["tokens"]), default=1.0) or 1.0
    parts = [_sample_html(sample, reach) for sample in shown]
    images = [f'<p><img src="{name}.png" alt="{name}"></p>' for name in figures]
    key = (
        f'<p class="key">Blue: likelier after tuning, up to {factor(reach)}. Red: less likely, down'
        f" to {factor(-reach)}. Point at a token for its factor.</p>"
    )
    heading = f"<h1>Inside {escape(title)}</h1><p>{escape(subtitle)}</p>"
    body = [heading, "<h2>Samples of the base</h2>", key, *parts, "<h2>Figures</h2>", *images]
    return _PAGE.format(title=escape(title), body="\n".join(body))


def _sample_html(sample: dict[str, Any], reach: float) -> str:
    tokens = "".join(_token_html(token, reach) for token in sample["tokens"])
    head = f"{sample['kind'].capitalize()} sample, score {number(sample['score'])}"
    prompt = escape(sample["prompt"])
    return f'<h3>{head}</h3><p class="text"><b>{prompt}</b>{tokens}</p>'


def _token_html(token: dict[str, Any], reach: float) -> str:
    share = round(100 * abs(token["change"]) / reach)
    color = "var(--up)" if token["change"] > 0 else "var(--down)"
    style = f"background: color-mix(in srgb, {color} {share}%, transparent)"
    text = escape(token["text"]).replace("\n", "⏎\n")
    return f'<span style="{style}" title="{factor(token["change"])}">{text}</span>'


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Inside {title}</title>
<style>
:root {{
  color-scheme: light dark;
  --up: light-dark(#5b9bd5, #2f6fae); --down: light-dark(#e58a76, #a8483a);
}}
body {{
  margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 3rem;
  font: 1rem/1.6 system-ui, sans-serif;
}}
h1 {{ font-size: 1.6rem; overflow-wrap: anywhere; }}
h2 {{ margin-top: 2.5rem; }}
h3 {{ font-size: 1rem; margin-bottom: .2rem; }}
.text {{ white-space: pre-wrap; overflow-wrap: anywhere; margin-top: 0; }}
.text span {{ border-radius: 3px; padding: .1em 0; }}
.key {{ font-size: .9rem; }}
img {{ max-width: 100%; height: auto; background: #fff; border-radius: 6px; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""
