"""The table as LaTeX, for a paper: \\input{table.tex} with the package booktabs."""

from pathlib import Path

from rlfactory.report.report import Report
from rlfactory.report.table import Words, main_table
from rlfactory.run.atomic import write_text

FILE = "table.tex"
_MARKS = {
    "\\": r"\textbackslash{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "…": r"\ldots{}",
    "−": "$-$",
    "<": "$<$",
    ">": "$>$",
}


def write_latex(report: Report, folder: Path) -> Path:
    """Write table.tex."""
    path = folder / FILE
    write_text(
        path, "\n".join([f"% {_one_line(report.title)}", *latex_table(main_table(report))]) + "\n"
    )
    return path


def latex_table(words: Words) -> list[str]:
    """The lines of a tabular."""
    sides = "".join("l" if i == 0 or h in words.left else "r" for i, h in enumerate(words.heads))
    rows = [f"{' & '.join(map(escaped, row))} \\\\" for row in [words.heads, *words.lines]]
    rules = [r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"]
    return [rf"\begin{{tabular}}{{{sides}}}", *rules, r"\end{tabular}"]


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_MARKS.get(letter, letter) for letter in _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())
