"""What a prompt of GenEval asks for, and whether it can be judged."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

COLORS = (
    *("red", "orange", "yellow", "green", "blue"),
    *("purple", "pink", "brown", "black", "white"),
)
"""Those that GenEval tells apart."""
RELATIONS = ("left of", "right of", "above", "below")
# the classes of COCO by GenEval's names, in COCO's order
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


def fault(metadata: Mapping[str, Any], objects: Collection[str]) -> str | None:
    """What keeps metadata from being judged by a detector of `objects`; None if nothing does."""
    for key in ("tag", "include"):
        if key not in metadata:
            return f"it brings no {key}"
    clauses = metadata["include"]
    if not isinstance(clauses, Sequence) or isinstance(clauses, str) or not clauses:
        return f"include={clauses!r} is no list of what should be there"
    wrong = (_clause_fault(clause, index, objects) for index, clause in enumerate(clauses))
    excluded = metadata.get("exclude") or ()
    unwanted = (_clause_fault(clause, 0, objects) for clause in excluded)
    return next((found for found in (*wrong, *unwanted) if found), None)


def _clause_fault(clause: Any, index: int, objects: Collection[str]) -> str | None:
    """What is wrong with the clause at some place of its list."""
    if not isinstance(clause, Mapping) or not {"class", "count"} <= clause.keys():
        return f"{clause!r} has no class and count"
    name, count = clause["class"], clause["count"]
    if name not in objects:
        return f"the detector knows no {name!r}; it knows {', '.join(objects)}"
    if not isinstance(count, int) or count < 1:
        return f"count={count!r} of {name!r} is no number from 1"
    if "color" in clause and clause["color"] not in COLORS:
        return f"color={clause['color']!r} of {name!r} is none of {', '.join(COLORS)}"
    return _position_fault(clause["position"], index) if "position" in clause else None


def _position_fault(position: Any, index: int) -> str | None:
    match position:
        case [str(relation), int(target)] if relation in RELATIONS and 0 <= target < index:
            return None
    return (
        f"position={position!r} is not one of {', '.join(RELATIONS)} and the place of an earlier"
        " clause, from 0"
    )
