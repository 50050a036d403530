"""A report that has everything in it, and a browser to see its page in."""

import importlib
import math
import sys
from pathlib import Path

import pytest
from PIL import Image

from rlfactory.report.report import (
    Cell,
    Comparison,
    Curve,
    Picture,
    Report,
    ReportRow,
    TextSample,
)
from rlfactory.sweep.table import About, Column

DOCS = str(Path(__file__).parents[3] / "scripts" / "docs")
sys.path.insert(0, DOCS)
chromium = importlib.import_module("chromium")
sys.path.remove(DOCS)

HOSTILE = '</script><script>document.title="taken"</script><img src=x onerror=alert(1)> & "quoted"'
ABOUT = About(
    title="One reward each, Stable Diffusion 3.5 M",
    paper="V-GRPO (2025)",
    table="Table 6",
    gpu_hours=400,
    ran="The tiny form, two seeds a row, on two CPU cores in 14 minutes",
    tolerance="The order of rows at full size; the tiny form shows the shape only",
)
COLUMNS = [
    Column("geneval", "GenEval", "eval/geneval", digits=2),
    Column("ocr", "OCR", "eval/ocr", digits=2),
    Column("kl", "KL", "last/kl/reference", better="lower", digits=3),
]
NAMES = ["V-GRPO", "Flow-GRPO, all steps", HOSTILE]
LAST = 120


def cell(paper: float | None, values: list[float], half: float = 0.03) -> Cell:
    """Ours as the mean of `values`."""
    if not values:
        return Cell(paper, None, None, None, 0, [])
    mean = sum(values) / len(values)
    return Cell(paper, mean, mean - half, mean + half, len(values), values)


def curve(row: int, metric: str, label: str, paper: float | None) -> Curve:
    """Something that rises, each row more slowly than the one before."""
    x = [float(i) for i in range(0, LAST + 1, 5)]
    mean = [0.3 + (0.5 - 0.1 * row) * (1 - math.exp(-i / 40)) for i in x]
    low, high = [m - 0.04 for m in mean], [m + 0.05 for m in mean]
    return Curve(NAMES[row], metric, x, mean, low, high, label, paper)


def rows() -> list[ReportRow]:
    """A good one, one on its way, and one that has nothing but a name meant to do harm."""
    cells = [
        {"geneval": cell(0.97, [0.81, 0.79]), "ocr": cell(0.34, [0.41, 0.43])},
        {"geneval": cell(0.95, [0.7]), "ocr": cell(None, [])},
        {"geneval": cell(0.63, []), "ocr": cell(None, [])},
    ]
    kl = [cell(None, [0.012, 0.014], 0.004), cell(None, [-0.0001]), cell(None, [])]
    full = [own | {"kl": last} for own, last in zip(cells, kl, strict=True)]
    return [
        ReportRow(NAMES[0], full[0], 120, 1.23e6, "2 done", "600 steps in the paper", {}),
        ReportRow(NAMES[1], full[1], 60, 96000, "1 done, 1 failed", "", {}),
        ReportRow(NAMES[2], full[2], None, None, "", "", {}),
    ]


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """One of everything."""
    shown = []
    for name, size, shade in (("grid", (640, 480), "teal"), ("strip", (1900, 300), "plum")):
        Image.new("RGB", size, shade).save(tmp_path / f"{name}.png")
        shown.append(Picture(NAMES[0], f"{name} of the last evaluation", tmp_path / f"{name}.png"))
    return Report(
        title=ABOUT.title,
        about=ABOUT,
        columns=COLUMNS,
        rows=rows(),
        curves=[
            *(curve(row, "eval/geneval", "GenEval", 0.97) for row in (0, 1)),
            *(curve(row, "eval/ocr", "OCR", 9.0 if row else None) for row in (0, 1, 2)),
        ],
        pictures=shown,
        texts=[TextSample(NAMES[1], HOSTILE, "It was dull.", "It was <b>dreadful</b>.")],
        differences={
            "algo.clip": ["0.2", "0.2", "1e-4"],
            "regularizer.beta": ["0", "0.04", HOSTILE],
        },
        notes=["run s2 is left out: half a line at the end of its metrics"],
        comparisons=[Comparison(*NAMES[:2], "geneval", 0.1, 0.04, 0.16, 2, 0.98, 0.9, 1.0)],
    )


@pytest.fixture(scope="session")
def browser():
    """A Chromium for all tests; without one they are skipped."""
    if chromium.executable() is None:
        pytest.skip("no Chromium here")
    with chromium.Chromium() as opened:
        yield opened
