"""The two diagrams of the concepts: an iteration, and the layers of packages, as SVG.

python scripts/docs/diagrams.py           # write docs/images/loop.svg and layers.svg
python scripts/docs/diagrams.py --check   # exit code 1 where one is stale

The layers are those of the contract in pyproject.toml. Colours are legible on light and dark pages.
"""

import argparse
import re
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
WIDTH = 480
FILL, EDGE, INK, ARROW = "#dbeafe", "#3b82f6", "#0f172a", "#7c8798"
FONT = "font-family='system-ui, sans-serif' text-anchor='middle'"
STEPS = {
    "prompts": (0, 0, "Prompts", "prompts=…"),
    "sample": (1, 0, "Sample", "model, dynamics"),
    "score": (2, 0, "Score", "reward=…"),
    "advantages": (2, 1, "Advantages", "advantage=…"),
    "learn": (1, 1, "Learn", "algo, regularizer"),
    "follow": (0, 1, "Record", "log, evaluate, save"),
}
"""Column, row, name and choices of each step of an iteration."""
ARROWS = [
    *(("prompts", "sample", "texts"), ("sample", "score", "rollout")),
    *(("score", "advantages", "scores"), ("advantages", "learn", "items")),
    *(("learn", "sample", "new policy"), ("learn", "follow", "results")),
]
COLUMN, ROW, BOX = 172, 130, (120, 62)


def loop() -> str:
    """An iteration: six steps, and what goes from one to the next."""
    boxes = [_box(*_corner(*step[:2]), *step[2:]) for step in STEPS.values()]
    arrows = [_arrow(*arrow) for arrow in ARROWS]
    return _svg(WIDTH, 2 * ROW - 60, [*arrows, *boxes], "An iteration of the training loop")


def layers() -> str:
    """The packages, a row a layer; each imports only from the rows below it."""
    rows = layer_names()
    height = 40
    parts = []
    for number, names in enumerate(rows):
        top = number * height + 4
        parts.append(_rectangle(4, top, WIDTH - 8, height - 8))
        parts.append(_text(WIDTH / 2, top + 21, " · ".join(names), 15))
    return _svg(WIDTH, len(rows) * height, parts, "The layers of packages")


def layer_names() -> list[list[str]]:
    """The packages of each layer, the highest first, from the contract that is checked."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (rows,) = [c["layers"] for c in contracts if c["type"] == "layers"]
    return [re.findall(r"\w+", row) for row in rows]


def _corner(column: int, row: int) -> tuple[int, int]:
    return 8 + column * COLUMN, 4 + row * ROW


def _box(x: int, y: int, name: str, choices: str) -> str:
    middle = x + BOX[0] / 2
    texts = _text(middle, y + 27, name, 16, 600) + _text(middle, y + 47, choices, 12)
    return _rectangle(x, y, *BOX) + texts


def _rectangle(x: float, y: float, width: float, height: float) -> str:
    shape = f"x='{x}' y='{y}' width='{width}' height='{height}' rx='8'"
    return f"<rect {shape} fill='{FILL}' stroke='{EDGE}'/>"


def _text(x: float, y: float, text: str, size: int, weight: int = 400, fill: str = INK) -> str:
    style = f"{FONT} font-size='{size}' font-weight='{weight}' fill='{fill}'"
    return f"<text x='{x}' y='{y}' {style}>{escape(text)}</text>"


def _arrow(source: str, target: str, label: str) -> str:
    (x1, y1), (x2, y2) = (_corner(*STEPS[name][:2]) for name in (source, target))
    width, height = BOX
    if y1 == y2:
        right = x1 < x2
        start, end = (x1 + width, x2 - 3) if right else (x1, x2 + width + 3)
        y = y1 + height / 2
        line, place = f"M{start} {y}H{end}", ((start + end) / 2, y - 7)
    else:
        down = y1 < y2
        start, end = (y1 + height, y2 - 3) if down else (y1, y2 + height + 3)
        x = x1 + width / 2
        line, place = f"M{x} {start}V{end}", (x - 42, (start + end) / 2 + 4)
    drawn = (
        f"<path d='{line}' stroke='{ARROW}' stroke-width='2' fill='none' marker-end='url(#tip)'/>"
    )
    return drawn + _text(*place, label, 12, 400, ARROW)


def _svg(width: int, height: int, parts: list[str], title: str) -> str:
    tip = "<path d='M0 0L8 4L0 8z'/>"
    marker = (
        f"<marker id='tip' markerWidth='8' markerHeight='8' refX='7' refY='4' orient='auto'"
        f" markerUnits='userSpaceOnUse' fill='{ARROW}'>{tip}</marker>"
    )
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img'>"
    return "\n".join(
        [head, f"<title>{title}</title>", f"<defs>{marker}</defs>", *parts, "</svg>\n"]
    )


DIAGRAMS = {"loop.svg": loop, "layers.svg": layers}


def stale() -> list[str]:
    """The diagrams whose files are not what they should be."""
    paths = {IMAGES / name: make() for name, make in DIAGRAMS.items()}
    return [p.name for p, text in paths.items() if not p.is_file() or p.read_text() != text]


def main() -> int:
    """Write the files, or compare them: 1 where one is stale."""
    parser = argparse.ArgumentParser(description="Write the diagrams of the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing")
    if parser.parse_args().check:
        return int(bool(stale()))
    for name, make in DIAGRAMS.items():
        (IMAGES / name).write_text(make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
