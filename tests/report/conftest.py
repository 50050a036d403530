"""Run folders and sweeps as training leaves them, for the tests of reports; no network is run."""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml
from PIL import Image

from rlfactory.report.read import RunRecord, Series
from rlfactory.report.report import Cell, Curve, Report, ReportRow, SampleImage
from rlfactory.report.sample_pairs import Sample, SamplePair
from rlfactory.report.text_table import TextTable, titled
from rlfactory.run.samples import sample_table
from rlfactory.run.scores import Scores
from rlfactory.sweep.table import Column, Job, Row, Table, TableInfo

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
from rlfactory.run.environment import Environment, record_environment
from rlfactory.run.folder import RunFolder
from rlfactory.run.samples import image_file

PROMPTS = ["a red circle", "two squares", "a <b>bold</b> | star"]
ABOUT = TableInfo("Shapes & shares", "A paper", "Table 1", 12.5, "not yet", "within 0.05")


def _make_run(
    path: Path,
    *,
    seed: int = 0,
    status: str = "done",
    score: str = "shapes",
    before: float = 0.2,
    after: float = 0.8,
    iterations: int = 4,
    media: str | None = None,
    config: Mapping[str, Any] | None = None,
    choices: Mapping[str, str] | None = None,
) -> Path:
    """A run whose held-out score rises in a straight line from `before` to `after`."""
    (path / "samples" / "strip").mkdir(parents=True)
    (path / "evaluations").mkdir()
    (path / "STATUS").write_text(f"{status}\n")
    chosen = {"algo": "nft", "reward": score, "model": "tiny_sd3", **(choices or {})}
    content = {
        "seed": seed,
        "iterations": iterations,
        "optimizer": {"lr": 0.001},
        "algo": {"_target_": chosen["algo"]},
        "evaluation": {"prompts": len(PROMPTS)},
        "run_dir": str(path),
        **(config or {}),
        "choices": chosen,
    }
    (path / "config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    reached = iterations if status == "done" else iterations // 2
    lines = _lines(score, before, after, iterations, reached)
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ends = {0: before} | ({iterations: after} if status == "done" else {})
    for iteration, mean in ends.items():
        values = np.array([mean - 0.1, mean, mean + 0.1])
        Scores(PROMPTS, {score: values}, diversity=0.3).save(
            path / "evaluations" / f"{iteration:06d}.json"
        )
        if media is not None:
            _samples(path / "samples", media, iteration)
    return path


def _make_sweep(
    folder: Path,
    *,
    columns: Sequence[Column] = (Column("shapes", "Shapes", "eval/shapes"),),
    rows: Sequence[Row] = (
        Row("NFT", {"shapes": 0.9}, "fast"),
        Row("GRPO", {"shapes": 0.7}),
        Row("FLUX.1", {"shapes": 0.5}),
    ),
    jobs: Sequence[Job] = (
        Job("nft-s0", "NFT", "nft-s0", [], {"seed": 0}),
        Job("nft-s1", "NFT", "nft-s1", [], {"seed": 1}),
        Job("grpo-s0", "GRPO", "grpo-s0", [], {"seed": 0}),
        Job("grpo-s1", "GRPO", "grpo-s1", [], {"seed": 1}),
    ),
    size: str = "tiny",
) -> Path:
    """A sweep's folder with its table, without its runs."""
    folder.mkdir(parents=True)
    Table("made", size, ABOUT, list(columns), list(rows), list(jobs)).save(folder)
    return folder


def _filled_sweep(folder: Path) -> Path:
    """A sweep with all four runs."""
    _make_sweep(folder)
    for algo, gain in (("nft", 0.6), ("grpo", 0.4)):
        for seed in (0, 1):
            after = 0.2 + gain + 0.1 * seed
            choices = {"algo": algo}
            _make_run(folder / f"{algo}-s{seed}", seed=seed, after=after, choices=choices)
    return folder


def _lines(
    score: str, before: float, after: float, iterations: int, reached: int
) -> list[dict[str, float | None]]:
    lines: list[dict[str, float | None]] = [_evaluation(score, 0, before)]
    for i in range(1, reached + 1):
        mean = before + (after - before) * i / iterations
        trained = {f"reward/{score}/mean": mean, "kl/reference": 0.01 * i, "nfe/total": 1000.0 * i}
        lines.append({"iteration": i, "time": float(i), **trained, "loss/policy": None})
    return [*lines, *([_evaluation(score, iterations, after)] if reached == iterations else [])]


def _evaluation(score: str, iteration: int, mean: float) -> dict[str, float | None]:
    values = {f"eval/{score}/mean": mean, "eval/diversity": 0.3, f"eval/{score}/two": None}
    return {"iteration": iteration, "time": float(iteration), **values}


def _samples(folder: Path, media: str, iteration: int) -> None:
    scores = {"shapes": [0.1 * iteration, 0.5, float("nan")]}
    texts = [f"{prompt}, {iteration}" for prompt in PROMPTS] if media == "texts" else None
    sample_table("samples", PROMPTS, texts, scores).save(folder / f"eval_{iteration:06d}.json")
    if texts is not None:
        (folder / f"eval_{iteration:06d}.md").write_text("# texts\n")
        (folder / "strip" / f"{iteration:06d}.json").write_text(json.dumps(texts))
        return
    picture = Image.new("RGB", (16, 16), (20 * iteration, 90, 160))
    picture.save(folder / f"eval_{iteration:06d}.png")
    picture.save(folder / "strip.png")
    for row in range(2):
        picture.save(folder / "strip" / f"{iteration:06d}_{row}.png")


@pytest.fixture
def make_run() -> Callable[..., Path]:
    """Makes a run."""
    return _make_run


@pytest.fixture
def make_sweep() -> Callable[..., Path]:
    """Makes a sweep without runs."""
    return _make_sweep


@pytest.fixture
def filled_sweep() -> Callable[..., Path]:
    """Makes a sweep with its runs."""
    return _filled_sweep


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOSTILE = '</script><script>document.title="taken"</script><img src=x onerror=alert(1)> & "quoted"'
SOURCE = TableInfo(
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
    """Two runs whose mean has an interval of `half` to both sides, or as many as given."""
    if len(values) != 2:
        return Cell(paper, values)
    mean, reach = sum(values) / 2, half / 12.706  # standard errors in the interval of two
    return Cell(paper, [mean - reach, mean + reach])


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
        ReportRow(NAMES[0], full[0], 120, 1.23e6, "2 done", "600 steps in the paper"),
        ReportRow(NAMES[1], full[1], 60, 96000, "1 done, 1 failed", ""),
        ReportRow(NAMES[2], full[2], None, None, "", ""),
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
        title=SOURCE.title,
        about=SOURCE,
        columns=COLUMNS,
        rows=rows(),
        curves=[
            *(curve(row, "eval/geneval", "GenEval", 0.97) for row in (0, 1)),
            *(curve(row, "eval/ocr", "OCR", 9.0 if row else None) for row in (0, 1, 2)),
        ],
        images=shown,
        texts={
            NAMES[1]: [
                SamplePair(
                    HOSTILE, Sample(0.1, "It was dull."), Sample(0.2, "It was <b>dreadful</b>.")
                )
            ]
        },
        notes=["run s2 is left out: half a line at the end of its metrics"],
        tables=titled(
            {
                "Against the first row": TextTable(
                    ["row", "against", "difference"],
                    [[*NAMES[:2], "+0.10"], [NAMES[2], NAMES[0], "–"]],
                    frozenset({"against"}),
                    strong=frozenset({(0, 2)}),
                )
            }
        ),
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


RUN_PROMPTS = ["a <b>red</b> circle", "two squares", "一个红色的圆形", "a cat 🐱", "fifth"]


def short_run(path: Path, *, texts: bool) -> RunFolder:
    """A run of four iterations with two evaluations."""
    folder = RunFolder.create(path)
    lines = []
    for iteration in range(5):
        values = {"reward/main/mean": 0.1 * iteration, "grad/norm": 1.0 / (1 + iteration)}
        lines.append({"iteration": iteration, "time": 10.0 * iteration, **values})
    for iteration in (0, 4):
        main = np.array([0.2, 0.5, 0.1, 0.9, 0.5]) + 0.1 * iteration * np.array([1, -1, 1, 0, 0])
        values = {"main": main, "cost": -main}
        kinds = ["x", "x", "y", "y", "y"]
        scores = Scores(RUN_PROMPTS, values, kinds, better={"main": "higher"})
        scores.save(folder.evaluation(iteration))
        words = [f"</script> text {i} of {iteration}" for i in range(5)] if texts else None
        columns = {name: column.tolist() for name, column in values.items()}
        table = sample_table("t", RUN_PROMPTS, words, columns)
        table.save(folder.samples / f"eval_{iteration:06d}.json")
        lines.append({"iteration": iteration, "eval/main/mean": float(main.mean())})
        for row in () if texts else range(5):
            file = image_file(folder.samples, iteration, row)
            file.parent.mkdir(exist_ok=True)
            Image.new("RGB", (16, 16), (50 * row, 60 * iteration, 90)).save(file)
    folder.metrics.write_text("".join(json.dumps({"time": 9.0, **line}) + "\n" for line in lines))
    choices = "{model: tiny_sd3, algo: nft, reward: shapes}"
    folder.config.write_text(f"seed: 7\niterations: 4\ngroup_size: 3\nchoices: {choices}\n")
    folder.command.write_text("rlfactory prompts='a & b'\n")
    folder.curves.write_bytes(b"")
    folder.set_status("done")
    environment = Environment("NVIDIA H200", 2, {"torch": "2.13"}, "0123456789ab+")
    record_environment(folder.environment, environment)
    return folder


@pytest.fixture
def images(tmp_path: Path) -> RunFolder:
    """A run that makes images."""
    return short_run(tmp_path / "my run", texts=False)


@pytest.fixture
def texts(tmp_path: Path) -> RunFolder:
    """A run that makes texts."""
    return short_run(tmp_path / "my run", texts=True)


@pytest.fixture
def measured_run(tmp_path: Path) -> RunRecord:
    """A finished run with two scores of evaluations and one of training."""

    def series(*values: float, every: int = 1, start: int = 0) -> Series:
        return np.arange(start, start + every * len(values), every) * 1.0, np.array(values)

    found = {
        "eval/a/mean": series(0.1, 0.9, 0.5, every=20),
        "eval/diversity": series(0.3, 0.2, every=40),
        "reward/a/mean": series(*range(40), start=1),
    }
    return RunRecord(tmp_path, "done", {}, found, 40)
