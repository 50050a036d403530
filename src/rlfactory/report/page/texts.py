"""What the models wrote before training and after it, prompt by prompt."""

from collections.abc import Sequence

from rlfactory.report.page.markup import Markup, join, tag
from rlfactory.report.page.words import plural
from rlfactory.report.report import TextSample


def texts(samples: Sequence[TextSample]) -> Markup:
    """A part that opens for each row, the first of them open."""
    rows = list(dict.fromkeys(sample.row for sample in samples))
    return join(*(_row(row, samples, opened=row == rows[0]) for row in rows))


def _row(row: str, samples: Sequence[TextSample], *, opened: bool) -> Markup:
    own = [sample for sample in samples if sample.row == row]
    summary = tag("summary", tag("span", row), tag("small", plural(len(own), "prompt")))
    return tag("details", summary, *map(_sample, own), open=opened)


def _sample(sample: TextSample) -> Markup:
    parts = [("Before", sample.before), ("After", sample.after)]
    sides = [tag("div", tag("h3", name), tag("p", text)) for name, text in parts if text.strip()]
    return tag("article", tag("p", sample.prompt, class_="prompt"), *sides, class_="text")
