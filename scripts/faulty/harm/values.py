"""What can be wrong with the values of a file of JSON or YAML that reads well otherwise."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from faulty.harm.places import Change, write

TOKEN = "@@value@@"
PLAIN = (
    *("null", "true", "false", "0", "-1", "1", "2", "0.5", "-0.5", "1e308", "1e999", "-1e999"),
    *("NaN", "Infinity", str(2**63), "1" * 5000, '""', '"text"', '"3"', '"nan"', "[]", "{}"),
    *(
        "[null]",
        "[[]]",
        "[1, 2]",
        '{"a": 1}',
        '{"step": 1}',
        '"../../x"',
        '"/etc/passwd"',
        '"\\ud800"',
    ),
    *('"\\u0000"', '"\\u001b[31mred\\u001b[2J"', '"a\\nb"', '"rlfactory.algo.grpo.GRPO"'),
    *('{"$": "tensor", "name": "none"}', '{"$": "float", "value": "x"}', '{"$": "tuple"}'),
    *(
        '{"$": "dict", "items": [[[], 1]]}',
        '{"$": "dict", "items": 1}',
        '{"_target_": "os.system"}',
    ),
    *(
        '{"_target_": "os.system"}',
        '"\\ud800"',
        '["a", "a"]',
        '[{"a": []}]',
        '"${oc.env:HOME}"',
        '"???"',
        '{"": 1}',
        '"=1+1"',
    ),
)
"""Values as they are written in JSON."""
SIZED = ("deep", "deep mapping", "long text", "long list", "long number")
OF_YAML = (
    *("&a [*a]", "&a {b: *a}", "*nothing", "!!python/object/apply:os.system [true]", "!!binary x"),
    *("2001-01-01", "2001-99-99", "!!set {a, b}", "{1: 2}", "{[a]: b}", "{null: 1}", "{true: 1}"),
    *("!unknown x", "!!int x", "!!float []", ".inf", ".nan", "0x10", "1:30:00", "{<<: 1}"),
    *("{a: 1, a: 2}", "[", '"', "{<<: [{a: 1}]}", "@x", "on", "~", "1_000"),
)


def _sized(kind: str, size: int) -> str:
    match kind:
        case "deep":
            return "[" * (20 * size) + "]" * (20 * size)
        case "deep mapping":
            return '{"a": ' * (20 * size) + "1" + "}" * (20 * size)
        case "long text":
            return f'"{"x" * (1000 * size)}"'
        case "long number":
            return "1" * (10 * size)
    return f"[{', '.join(['1'] * (100 * size))}]"


def _bomb(size: int) -> str:
    """Nested aliases: a few lines that are 9 ** size values."""
    parts = ["&a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for i in range(min(size, 12)):
        parts.append(f"&a{i + 1} [{', '.join([f'*a{i}'] * 9)}]")
    return f"[{', '.join(parts)}]"


def _raw(chance: random.Random, size: int, is_yaml: bool) -> str:
    draw = chance.random()
    if draw < 0.15:
        return _sized(chance.choice(SIZED), size)
    if is_yaml and draw < 0.25:
        return _bomb(size)
    return chance.choice(OF_YAML if is_yaml and draw < 0.55 else PLAIN)


def _paths(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    pairs = enumerate(tree) if isinstance(tree, list) else ()
    for key, value in tree.items() if isinstance(tree, dict) else pairs:
        yield from _paths(value, (*path, key))


def _chosen(tree: Any, chance: random.Random, root: bool = True) -> tuple[Any, ...]:
    """A place in a tree; each depth is as likely, since most values are the deepest."""
    by_depth: dict[int, list[tuple[Any, ...]]] = {}
    for path in _paths(tree):
        by_depth.setdefault(len(path), []).append(path)
    depths = [depth for depth in by_depth if root or depth]
    return chance.choice(by_depth[chance.choice(depths)]) if depths else ()


def _at(tree: Any, path: Sequence[Any]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _replaced(tree: Any, path: Sequence[Any], value: Any) -> Any:
    if not path:
        return value
    _at(tree, path[:-1])[path[-1]] = value
    return tree


def _value(tree: Any, chance: random.Random) -> Any:
    return _replaced(tree, _chosen(tree, chance), TOKEN)


def _without(tree: Any, chance: random.Random) -> Any:
    if path := _chosen(tree, chance, root=False):
        del _at(tree, path[:-1])[path[-1]]
    return tree


def _renamed(tree: Any, chance: random.Random) -> Any:
    path = _chosen(tree, chance, root=False)
    parent = _at(tree, path[:-1])
    if path and isinstance(parent, dict):
        name = chance.choice([f"{path[-1]}x", "", "\u001b[31m", "a/b", "$"])
        parent[name] = parent.pop(path[-1])
    return tree


def _added(tree: Any, chance: random.Random) -> Any:
    parent = _at(tree, _chosen(tree, chance))
    if isinstance(parent, dict):
        parent[chance.choice(["x", "step", "_target_", "$", "0"])] = TOKEN
    elif isinstance(parent, list):
        parent.insert(chance.randrange(len(parent) + 1), TOKEN)
    return tree


def _exchanged(tree: Any, chance: random.Random) -> Any:
    one, other = (_chosen(tree, chance, root=False) for _ in range(2))
    if one and other and one[: len(other)] != other and other[: len(one)] != one:
        first, second = _at(tree, one), _at(tree, other)
        tree = _replaced(_replaced(tree, one, second), other, first)
    return tree


TREES = {
    "another value": _value,
    "another value ": _value,
    "a key less": _without,
    "a key renamed": _renamed,
    "a value more": _added,
    "two values exchanged": _exchanged,
}


def edited(data: bytes, kind: str, suffix: str, chance: random.Random, size: int) -> bytes:
    """The content of a file with one value changed; as it is where it does not parse."""
    is_yaml = suffix == ".yaml"
    if suffix == ".jsonl":
        lines = data.split(b"\n")
        number = chance.randrange(max(1, len(lines) - 1))
        lines[number] = edited(lines[number], kind, ".line", chance, size)
        return b"\n".join(lines)
    tree = yaml.safe_load(data) if is_yaml else json.loads(data)
    tree = TREES[kind](tree, chance)
    text = yaml.safe_dump(tree, sort_keys=False) if is_yaml else _json(tree, suffix)
    raw = _raw(chance, size, is_yaml)
    for quoted in (json.dumps(TOKEN), f"'{TOKEN}'", TOKEN):
        text = text.replace(quoted, raw)
    return text.encode("utf-8", "surrogatepass")


def _json(tree: Any, suffix: str) -> str:
    return json.dumps(tree, indent=None if suffix == ".line" else 1)


def _edit(kind: str, path: Path, chance: random.Random, size: int) -> None:
    try:
        data = edited(path.read_bytes(), kind, path.suffix, chance, size)
    except (ValueError, yaml.YAMLError):  # another damage was there before
        data = b"?"
    write(path, data)


VALUES: Mapping[str, Change] = {kind: partial(_edit, kind) for kind in TREES}
