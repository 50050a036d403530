"""The table of docs/options.md: which algorithm trains which family of image models.

python scripts/docs/matrix.py           # write it into docs/options.md
python scripts/docs/matrix.py --check   # exit code 1 where the page is stale

An algorithm is each file of conf/algo that learns from images. A family's row is that of its small
model where it has one (that is what tests train) and of its full-size ones; all must agree.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from generated import Generated

from rlfactory.config.options import options
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError, Problem
from rlfactory.config.schema.root import GROUPS

ROOT = Path(__file__).parents[2]
PAGE, PAIRS = ROOT / "docs" / "options.md", ROOT / "tests" / "data" / "image_pairs.jsonl"
BEGIN, END = "<!-- matrix: python scripts/docs/matrix.py -->", "<!-- end of matrix -->"
TESTED, NEVER = "✓", "–"
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "Stable Diffusion 1, 2": ("tiny_sd", "sd14", "sd15"),
    "Stable Diffusion XL": ("sdxl",),
    "Stable Diffusion 3, 3.5": ("tiny_sd3", "sd35"),
    "FLUX.1": ("tiny_flux", "flux"),
    "FLUX.1 schnell": ("flux_schnell",),
    "FLUX.1 Kontext": ("flux_kontext",),
    "Qwen-Image": ("qwen_image",),
    "Z-Image": ("z_image",),
    "Z-Image-Turbo": ("z_image_turbo",),
    "FLUX.2 klein": ("flux2_klein",),
    "FLUX.2 dev": ("flux2_dev",),
    "SANA": ("sana",),
    "Wan (video)": ("wan",),
}
"""The options of `model` of each family, the one that tests train first."""


def models(family: str) -> list[str]:
    """The family's options of `model` that there are."""
    return [name for name in FAMILIES[family] if name in options("model")]


@cache
def algorithms() -> tuple[str, ...]:
    """Those that learn from images."""
    return tuple(name for name in options("algo") if _learns_from_images(name))


def _learns_from_images(name: str) -> bool:
    try:
        plan = plan_from_words("model=tiny_sd3", f"algo={name}", *data("tiny_sd3", name))
    except PlanError as error:
        return "algo" not in {problem.key for problem in error.problems}
    return plan.choices["algo"] == name  # one on texts may stand for another one


@cache
def verdict(model: str, algorithm: str) -> tuple[tuple[str, ...], str | None]:
    """What must be typed beside model and algorithm, and why they are refused, if they are.

    A problem whose remedy replaces no choice, such as a micro-batch too small, is no refusal.
    """
    pair = (f"model={model}", f"algo={algorithm}", *data(model, algorithm))
    problems = _problems(*pair)
    more = tuple(p.fix for p in problems if "=" in p.fix and p.key not in GROUPS)
    if problems and len(more) == len(problems) and not _problems(*pair, *more):
        return more, None
    return (), _reason(problems) if problems else None


def data(model: str, algorithm: str) -> tuple[str, ...]:
    """The prompts of an algorithm that learns from images of the data."""
    if algorithm != "diffusion_dpo_offline":
        return ()
    edited = ("prompts.image_column=rejected",) if model == "flux_kontext" else ()
    return ("prompts=file", f"prompts.path={PAIRS}", *edited)


def _problems(*words: str) -> list[Problem]:
    try:
        plan_from_words(*words)
    except PlanError as error:
        return error.problems
    return []


def _reason(problems: list[Problem]) -> str:
    return "; ".join(f"{problem.key}: {problem.message}" for problem in problems)


def allowed() -> list[tuple[str, str, tuple[str, ...]]]:
    """Model, algorithm and the words beside them, of each pair that tests train."""
    pairs = [(models(family)[0], name) for family in FAMILIES for name in algorithms()]
    return [
        (*pair, (*verdict(*pair)[0], *data(*pair))) for pair in pairs if verdict(*pair)[1] is None
    ]


def on_page() -> list[tuple[str, str, tuple[str, ...]]]:
    """What `allowed` gives, read from the page, as planning every pair takes a minute."""
    lines = PART.stale().partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    columns = [cell.strip(" `") for cell in lines[0].split("|")[2:-1]]
    rows = zip(FAMILIES, lines[2:], strict=False)
    marks = [(models(family)[0], line.split("|")[2:-1]) for family, line in rows]
    return [
        (model, name, data(model, name))
        for model, cells in marks
        for name, cell in zip(columns, cells, strict=True)
        if cell.strip().startswith(TESTED)
    ]


def table() -> str:
    """A row a family, a column an algorithm; under it what a number in a cell stands for."""
    notes: dict[str, int] = {}
    lines = [_line(["", *(f"`{name}`" for name in algorithms())])]
    lines.append(_line(["---", *([":-:"] * len(algorithms()))]))
    for family in FAMILIES:
        shown = ", ".join(f"`{model}`" for model in models(family))
        cells = [_cell(family, algorithm, notes) for algorithm in algorithms()]
        lines.append(_line([f"{family}: {shown}", *cells]))
    explained = [f"{number}. {text}" for text, number in notes.items()]
    return "\n".join([*lines, "", *explained]).rstrip()


def _cell(family: str, algorithm: str, notes: dict[str, int]) -> str:
    found = {model: verdict(model, algorithm) for model in models(family)}
    reasons = {reason for _, reason in found.values()}
    if len(reasons) > 1:
        raise ValueError(f"{algorithm} does not treat the models of {family} alike: {found}")
    (reason,) = reasons
    texts = [f"refused: {reason}"] if reason else _beside(found)
    numbers = [notes.setdefault(text, len(notes) + 1) for text in texts]
    shown = TESTED if reason is None else NEVER
    return shown + (f" ({', '.join(map(str, numbers))})" if numbers else "")


def _beside(found: Mapping[str, tuple[tuple[str, ...], str | None]]) -> list[str]:
    """Which of a family's models need more words, and which."""
    wanted: dict[tuple[str, ...], list[str]] = {}
    for model, (words, _) in found.items():
        if words:
            wanted.setdefault(words, []).append(f"`{model}`")
    return [f"{', '.join(names)}: with `{' '.join(words)}`" for words, names in wanted.items()]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


PART = Generated(PAGE, BEGIN, END, table)

if __name__ == "__main__":
    raise SystemExit(PART.main(__doc__.splitlines()[0]))
