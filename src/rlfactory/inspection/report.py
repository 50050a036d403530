"""A survey in numbers: a page for people and the same for programs."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from rlfactory.inspection.attribution import Attribution, part_names
from rlfactory.inspection.lens import likelier
from rlfactory.inspection.names import token_name
from rlfactory.inspection.survey import DirectionView, Survey
from rlfactory.run.atomic import write_text
from rlfactory.run.format import number

_LARGEST = 8
NO_DIRECTION = "The reward tells no two of the base's samples of a prompt apart: no direction."


def contents(survey: Survey, tokenizer: Any) -> dict[str, Any]:
    """Every number of the figures, by name."""
    depth = survey.base.parts.mlp.shape[1]
    base, tuned = survey.attributions()
    change = likelier(survey.base.lens, survey.tuned.lens)
    tokens = [
        {
            "token": token_name(tokenizer, token),
            "id": token,
            "base": float(survey.probability[0, token]),
            "tuned": float(survey.probability[1, token]),
            "lens": change[:, k].tolist(),
            "base_parts": dict(zip(part_names(depth), _column(base, k), strict=True)),
            "tuned_parts": dict(zip(part_names(depth), _column(tuned, k), strict=True)),
        }
        for k, token in enumerate(survey.ids.tolist())
    ]
    half = len(tokens) // 2
    found = survey.direction and _direction(survey.direction, tokenizer)
    return {"rose": tokens[:half], "fell": tokens[half:], "direction": found}


def write_report(found: dict[str, Any], title: str, folder: Path) -> None:
    """Write `inspect.json` and `inspect.md`."""
    write_text(folder / "inspect.json", json.dumps(found, ensure_ascii=False, indent=1) + "\n")
    lines = [f"# Inside {title}", "", "## Tokens that rose", "", *_tokens(found["rose"])]
    lines += ["", "## Tokens that fell", "", *_tokens(found["fell"])]
    lines += ["", "## From bad to good samples", ""]
    lines += [NO_DIRECTION] if found["direction"] is None else _along(found["direction"])
    figures = ("lens", "samples", "attribution", "direction")
    drawn = [name for name in figures if (folder / f"{name}.png").is_file()]
    lines += ["", "## Figures", "", *(f"![{name}]({name}.png)" for name in drawn)]
    write_text(folder / "inspect.md", "\n".join(lines) + "\n")


def _column(found: Attribution, k: int) -> list[float]:
    values: list[float] = found.parts()[0, :, k].tolist()
    return values


def _direction(view: DirectionView, tokenizer: Any) -> dict[str, Any]:
    return {
        "shift": view.change.difference,
        "low": view.change.low,
        "high": view.change.high,
        "prompts": view.change.count,
        "separation": None if view.separation != view.separation else view.separation,
        "for": [token_name(tokenizer, i) for i in view.up.tolist()],
        "against": [token_name(tokenizer, i) for i in view.down.tolist()],
        "gap_parts": _by_part(view.gap),
        "shift_parts": _by_part(view.shift),
    }


def _by_part(found: Attribution) -> dict[str, float]:
    """The contribution of each head, MLP and the rest, by name."""
    heads = {
        f"head {layer}.{head}": value
        for layer, row in enumerate(_row(found.heads), start=1)
        for head, value in enumerate(row, start=1)
    }
    biases = {f"attention bias {i}": v for i, v in enumerate(_row(found.head_bias), start=1)}
    mlps = {f"MLP {i}": value for i, value in enumerate(_row(found.mlp), start=1)}
    rest = {"embeddings": _row(found.start), "constant": _row(found.constant)}
    return {**rest, **heads, **biases, **mlps}


def _row(parts: Tensor) -> Any:
    return parts[0, ..., 0].tolist()


def _tokens(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| token | base | tuned | change | logit moved by |", "|---|---:|---:|---:|---|"]
    for row in rows:
        change = row["tuned"] - row["base"]
        cells = [number(row["base"]), number(row["tuned"]), number(change, sign=True)]
        moved = {part: row["tuned_parts"][part] - old for part, old in row["base_parts"].items()}
        wrote = _largest(moved, 3)
        token = row["token"].replace("|", "\\|")  # else it would end the cell
        lines.append(f"| `{token}` | {' | '.join(cells)} | {wrote} |")
    return lines


def _along(found: dict[str, Any]) -> list[str]:
    separation = float("nan") if found["separation"] is None else found["separation"]
    shift, low, high = (number(found[key], sign=True) for key in ("shift", "low", "high"))
    return [
        f"Tuning moved the network by {shift} along this direction, on the same texts of"
        f" {found['prompts']} prompts (95 % interval {low} to {high}). 1 is the gap between bad and"
        " good samples of the base.",
        "",
        f"A good sample lies above a bad one, of prompts that had no part in the direction, with"
        f" probability {number(separation)} (0.5 is chance).",
        "",
        f"- speaks for: {_listed(found['for'])}",
        f"- speaks against: {_listed(found['against'])}",
        f"- most of the gap: {_largest(found['gap_parts'], _LARGEST)}",
        f"- most of the shift: {_largest(found['shift_parts'], _LARGEST)}",
    ]


def _listed(tokens: list[str]) -> str:
    return ", ".join(f"`{token}`" for token in tokens)


def _largest(parts: dict[str, float], count: int) -> str:
    order = sorted(parts, key=lambda name: -abs(parts[name]))[:count]
    return ", ".join(f"{name} {number(parts[name], sign=True)}" for name in order)
