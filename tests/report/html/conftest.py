"""A report with everything in it, and a browser that shows its page."""

import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from rlfactory.report.report import (
    Cell,
    Comparison,
    Curve,
    Report,
    ReportRow,
    SampleImage,
    TextSample,
)
from rlfactory.sweep.table import Column, TableInfo

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOSTILE = '</script><script>document.title="taken"</script><img src=x onerror=alert(1)> & "quoted"'
ABOUT = TableInfo(
    title="One reward each, Stable Diffusion 3.5 M",
    paper="V-GRPO (2025)",
    table="Table 6",
    gpu_hours=400,
    ran="The tiny form, two seeds a row, on two CPU cores in 14 minutes",
    tolerance="The order of rows at full size; the tiny form shows the shape only",
)
COLUMNS = [
    Column("geneval", "GenEval", "eval/geneval", "higher", digits=2),
    Column("ocr", "OCR", "eval/ocr", "higher", digits=2),
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
        shown.append(
            SampleImage(NAMES[0], f"{name} of the last evaluation", tmp_path / f"{name}.png")
        )
    return Report(
        title=ABOUT.title,
        about=ABOUT,
        columns=COLUMNS,
        rows=rows(),
        curves=[
            *(curve(row, "eval/geneval", "GenEval", 0.97) for row in (0, 1)),
            *(curve(row, "eval/ocr", "OCR", 9.0 if row else None) for row in (0, 1, 2)),
        ],
        images=shown,
        texts=[TextSample(NAMES[1], HOSTILE, "It was dull.", "It was <b>dreadful</b>.")],
        differences={
            "algo.clip": ["0.2", "0.2", "1e-4"],
            "regularizer.beta": ["0", "0.04", HOSTILE],
        },
        notes=["run s2 is left out: half a line at the end of its metrics"],
        comparisons=[Comparison(*NAMES[:2], "geneval", 0.1, 0.04, 0.16, 3, 0.98, 0.9, 1.0)],
    )


@pytest.fixture(scope="session")
def chromium() -> "Iterator[Browser]":
    """The system's Chromium; without it, or without playwright, its tests are skipped."""
    api = pytest.importorskip("playwright.sync_api")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("Chromium is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def show(chromium: "Browser") -> "Iterator[Callable[..., Page]]":
    """Opens a file in a fresh profile, as a screen of that size would show it."""
    contexts = []

    def opened(
        path: Path,
        *,
        width: int = 1280,
        dark: bool = False,
        script: bool = True,
        touch: bool = False,
    ) -> "Page":
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
            is_mobile=touch,
            has_touch=touch,
        )
        contexts.append(context)
        page = context.new_page()
        page.requested, page.complaints = [], []
        page.on("request", lambda request: page.requested.append(request.url))
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(path.absolute().as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
