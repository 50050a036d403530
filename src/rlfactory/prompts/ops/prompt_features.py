"""Features that rewards look for in a prompt: the word that it quotes, for `reward=ocr`; and
GenEval's metadata, what an image must show by object classes, counts, colours and relations.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

COLORS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white")
"""The colours that GenEval distinguishes."""
RELATIONS = ("left of", "right of", "above", "below")
OBJECTS = tuple(
    """
person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,stop sign,
parking meter,bench,bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,
handbag,tie,suitcase,frisbee,skis,snowboard,sports ball,kite,baseball bat,baseball glove,skateboard,
surfboard,tennis racket,bottle,wine glass,cup,fork,knife,spoon,bowl,banana,apple,sandwich,orange,
broccoli,carrot,hot dog,pizza,donut,cake,chair,couch,potted plant,bed,dining table,toilet,tv,laptop,
computer mouse,tv remote,computer keyboard,cell phone,microwave,oven,toaster,sink,refrigerator,book,
clock,vase,scissors,teddy bear,hair drier,toothbrush
""".replace("\n", "").split(",")
)
"""COCO's 80 classes by GenEval's names, in COCO's order: a detector's labels are indices."""


def metadata_problem(metadata: Mapping[str, Any], objects: Collection[str]) -> str | None:
    """Why a detector of `objects` can't score a prompt's metadata; None if it can."""
    for key in ("tag", "include"):
        if key not in metadata:
            return f"its metadata lacks {key}"
    return clauses_problem(metadata, objects)


def clauses_problem(metadata: Mapping[str, Any], objects: Collection[str]) -> str | None:
    """The same of `include` and `exclude` alone."""
    clauses = metadata["include"]
    if not isinstance(clauses, Sequence) or isinstance(clauses, str) or not clauses:
        return f"include={clauses!r} is no list of clauses"
    included = (_clause_problem(clause, index, objects) for index, clause in enumerate(clauses))
    excluded = (_clause_problem(clause, 0, objects) for clause in metadata.get("exclude") or ())
    return next((problem for problem in (*included, *excluded) if problem), None)


def _clause_problem(clause: Any, index: int, objects: Collection[str]) -> str | None:
    """The fault of the clause at `index` of its list; a relation's target comes earlier."""
    if not isinstance(clause, Mapping) or not {"class", "count"} <= clause.keys():
        return f"{clause!r} has no `class` and `count`"
    name, count = clause["class"], clause["count"]
    if name not in objects:
        return f"the detector knows no {name!r}; it knows {', '.join(objects)}"
    if not isinstance(count, int) or count < 1:
        return f"count={count!r} of {name!r} is no number of 1 or more"
    if "color" in clause and clause["color"] not in COLORS:
        return f"color={clause['color']!r} of {name!r} is not one of {', '.join(COLORS)}"
    return _position_problem(clause["position"], index) if "position" in clause else None


def _position_problem(position: Any, index: int) -> str | None:
    match position:
        case [str(relation), int(target)] if relation in RELATIONS and 0 <= target < index:
            return None
    return (
        f"position={position!r} is not a pair of {', '.join(RELATIONS)} and the index of an earlier"
        " clause, from 0"
    )


def quoted_word(prompt: str) -> str | None:
    """The text between a prompt's first two straight double quotes; None without two."""
    parts = prompt.split('"', 2)
    return parts[1] if len(parts) == 3 else None


def quotation_problem(prompt: str) -> str | None:
    """The reason why a prompt names no word; None if it names one."""
    target = quoted_word(prompt)
    if target is None:
        return f"the prompt {prompt!r} has no text in double quotes"
    return None if target.strip() else f"the prompt {prompt!r} quotes nothing"


def _objects_problem(prompt: str, row: Mapping[str, Any]) -> str | None:
    problem = metadata_problem(row, OBJECTS)
    return f"for {prompt!r} {problem}" if problem else None


FEATURES: Mapping[str, tuple[str, str, Callable[[str, Mapping[str, Any]], str | None]]] = {
    "quoted_word": (
        'a word in straight double quotes, as in a sign that says "Open",',
        "signs",
        lambda prompt, row: quotation_problem(prompt),
    ),
    "coco_objects": ("objects that its detector knows", "geneval", _objects_problem),
}
"""What a reward may look for: in words, the prompts that have it, and what a row lacks."""
