"""GenEval's scores of detected objects, independent of the detector.

Strict is the benchmark's result (Ghosh et al. 2023, `evaluate_images.py`); soft is the graded score
on which Flow-GRPO trains (Liu et al. 2025, `gen_eval.py`), whose two peculiarities are options.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from typing import Any, Literal

RelationCredit = Literal["none", "flow_grpo"]
POSITION_THRESHOLD = 0.1


@dataclass(frozen=True)
class Detection:
    """A detected object: its class, its colour (None: none of the known ones), and its box
    `(left, top, right, bottom)` in pixels, y downwards.
    """

    name: str
    color: str | None
    box: tuple[float, float, float, float]


def relative_position(a: Detection, b: Detection) -> set[str]:
    """The relations of `a` to `b`: none, one or two of left of, right of, above, below.

    On each axis the offset of the centres is reduced by a tenth of the boxes' summed sizes; the
    relation holds where the rest exceeds half of the distance between the centres.
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
    """1 if each clause of `include` is met and none of `exclude`, otherwise 0.

    Of a class detected more often than required, the first ones count: `detections` must be ordered
    by falling confidence.
    """
    matched: list[list[Detection]] = []
    for clause in metadata["include"]:
        objects = _named(detections, clause["class"])[: clause["count"]]
        if len(objects) < clause["count"]:
            return 0.0
        if "color" in clause and _count_color(objects, clause["color"]) < clause["count"]:
            return 0.0
        if "position" in clause and not all(_pairs(objects, clause, matched)):
            return 0.0
        matched.append(objects)
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
    """The mean of graded terms over the clauses of `include`; 1 exactly if all are met.

    A clause gives `1 - |need - found| / need`; then, if the count is correct, the same for the
    objects of the required colour; and, if that is correct too, a term for the relation. With a
    wrong count, one 0 replaces these two. A wrong relation gives 0. `exclude` is not used.

    Args:
        detections: Objects, ordered by falling confidence.
        metadata: GenEval's metadata of the prompt.
        relation_credit: "flow_grpo": a wrong relation gives a 0 and also a 1, as published, however
            many of its pairs are wrong.
        clamp: Limit terms to at least 0; as published (False), 16 objects for one give -14.
        faults: Further terms of 0, for objects that a detector itself reports as faults.
    """
    terms: list[float] = []
    matched: list[list[Detection]] = []
    for clause in metadata["include"]:
        objects = _named(detections, clause["class"])
        grades = _grades(objects, clause, matched, relation_credit)
        matched.append(objects if all(grade == 1.0 for grade in grades) else [])
        terms += [max(grade, 0.0) for grade in grades] if clamp else grades
    terms += [0.0] * faults
    return sum(terms) / len(terms) if terms else 0.0


def _grades(
    objects: list[Detection],
    clause: Mapping[str, Any],
    matched: Sequence[list[Detection]],
    relation_credit: RelationCredit,
) -> list[float]:
    """The terms of one clause; `matched` are the objects of the earlier clauses."""
    need = clause["count"]
    grades = [_closeness(len(objects), need)]
    if len(objects) != need:
        return grades + [0.0] * ("color" in clause or "position" in clause)
    if "color" in clause:
        grades.append(_closeness(_count_color(objects, clause["color"]), need))
    if "position" not in clause or grades[-1] != 1.0:
        return grades
    pairs = _pairs(objects, clause, matched)
    holds = bool(pairs) and all(pairs)
    credit = [1.0] if relation_credit == "flow_grpo" and pairs and not holds else []
    return [*grades, float(holds), *credit]


def _closeness(count: int, need: int) -> float:
    return 1 - abs(need - count) / need


def _named(detections: Sequence[Detection], name: str) -> list[Detection]:
    return [item for item in detections if item.name == name]


def _count_color(objects: Sequence[Detection], color: str) -> int:
    return sum(item.color == color for item in objects)


def _pairs(
    objects: Sequence[Detection], clause: Mapping[str, Any], matched: Sequence[list[Detection]]
) -> list[bool]:
    """Whether the relation holds, for each pair of an object and one of the target clause."""
    relation, target = clause["position"]
    return [relation in relative_position(a, b) for a in objects for b in matched[target]]
