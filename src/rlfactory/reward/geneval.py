"""GenEval's scoring of detected objects, whoever detected them.

Strict is the benchmark's own verdict (Ghosh et al. 2023, `evaluate_images.py`); soft is the graded
score on which Flow-GRPO trains (Liu et al. 2025, `gen_eval.py`), whose two quirks are options.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from typing import Any, Literal

RelationCredit = Literal["none", "flow_grpo"]
POSITION_THRESHOLD = 0.1


@dataclass(frozen=True)
class Detection:
    """One object: its class, its colour (None: none of the known ones) and its box.

    The box is `(left, top, right, bottom)`, y downwards.
    """

    name: str
    color: str | None
    box: tuple[float, float, float, float]


def relative_position(a: Detection, b: Detection) -> set[str]:
    """How `a` stands to `b`: none, one or two of left of, right of, above, below.

    The offset of the centres is shortened by a tenth of the boxes' summed sizes; an axis counts
    where what is left exceeds half of the distance between the centres.
    """
    (ax, ay, aw, ah), (bx, by, bw, bh) = _centre_and_size(a), _centre_and_size(b)
    dx, dy = ax - bx, ay - by
    x = max(abs(dx) - POSITION_THRESHOLD * (aw + bw), 0.0)
    y = max(abs(dy) - POSITION_THRESHOLD * (ah + bh), 0.0)
    if x < 1e-3 and y < 1e-3:
        return set()
    half = 0.5 * hypot(dx, dy)
    along_x = {"left of" if dx < 0 else "right of"} if x > half else set()
    return along_x | ({"above" if dy < 0 else "below"} if y > half else set())


def _centre_and_size(item: Detection) -> tuple[float, float, float, float]:
    left, top, right, bottom = item.box
    return (left + right) / 2, (top + bottom) / 2, right - left, bottom - top


def strict_score(detections: Sequence[Detection], metadata: Mapping[str, Any]) -> float:
    """1 if everything in `include` is there and nothing in `exclude` is, otherwise 0.

    Of a class found more often than asked, the first ones count: detections come most certain
    first.
    """
    matched: list[list[Detection]] = []
    for clause in metadata["include"]:
        found = _named(detections, clause["class"])[: clause["count"]]
        if len(found) < clause["count"]:
            return 0.0
        if "color" in clause and _of_color(found, clause["color"]) < clause["count"]:
            return 0.0
        if "position" in clause and not all(_pairs(found, clause, matched)):
            return 0.0
        matched.append(found)
    surplus = (
        len(_named(detections, clause["class"])) >= clause["count"]
        for clause in metadata.get("exclude", ())
    )
    return 0.0 if any(surplus) else 1.0


def soft_score(
    detections: Sequence[Detection],
    metadata: Mapping[str, Any],
    *,
    relation_credit: RelationCredit = "none",
    clamp: bool = True,
    faults: int = 0,
) -> float:
    """The mean of graded terms over the clauses of `include`, 1 exactly if each of them is met.

    A clause gives `1 - |need - found| / need`; then, if the count is right, the same for the
    objects of the right colour, and, if that is right too, a term for the relation; a wrong count
    gives one 0 for all of these. Terms are clamped to [0, 1]: otherwise sixteen objects in place of
    one give -14. A wrong relation gives 0; with `relation_credit="flow_grpo"` it gives a 0 for each
    wrong pair and a 1 besides, as published. `faults` are further terms of 0, for what a detector
    finds wrong by itself. `exclude` plays no part.
    """
    terms: list[float] = []
    matched: list[list[Detection]] = []
    for clause in metadata["include"]:
        found = _named(detections, clause["class"])
        grades = _grades(found, clause, matched, relation_credit)
        matched.append(found if all(grade == 1.0 for grade in grades) else [])
        terms += [max(grade, 0.0) for grade in grades] if clamp else grades
    terms += [0.0] * faults
    return sum(terms) / len(terms) if terms else 0.0


def _grades(
    found: list[Detection],
    clause: Mapping[str, Any],
    matched: Sequence[list[Detection]],
    relation_credit: RelationCredit,
) -> list[float]:
    need = clause["count"]
    grades = [_closeness(len(found), need)]
    if len(found) != need:
        return grades + [0.0] * ("color" in clause or "position" in clause)
    if "color" in clause:
        grades.append(_closeness(_of_color(found, clause["color"]), need))
    if "position" not in clause or grades[-1] != 1.0:
        return grades
    pairs = _pairs(found, clause, matched)
    if relation_credit == "none" or not pairs:
        return [*grades, float(bool(pairs) and all(pairs))]
    return grades + [0.0] * pairs.count(False) + [1.0]


def _closeness(found: int, need: int) -> float:
    return 1 - abs(need - found) / need


def _named(detections: Sequence[Detection], name: str) -> list[Detection]:
    return [item for item in detections if item.name == name]


def _of_color(found: Sequence[Detection], color: str) -> int:
    return sum(item.color == color for item in found)


def _pairs(
    found: Sequence[Detection], clause: Mapping[str, Any], matched: Sequence[list[Detection]]
) -> list[bool]:
    """Whether the relation holds for each object and each one of the target clause, if any."""
    relation, target = clause["position"]
    return [relation in relative_position(a, b) for a in found for b in matched[target]]
