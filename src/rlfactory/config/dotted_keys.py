"""The values of a configuration by their dotted keys, such as `optimizer.lr`."""

from collections.abc import Iterator, Mapping
from typing import Any


def value_at(config: object, key: str, default: object = None) -> Any:
    """The value at a dotted key; `default` where a mapping lacks one of its parts."""
    node = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return default
        node = node[part]
    return node


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted keys and values of all values that are no mappings, without `_target_`."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        elif name != "_target_":
            yield f"{prefix}{name}", value


def merged(below: Any, above: Any) -> Any:
    """A mapping with another one's values on top, as Hydra merges files."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    return {**below, **{key: merged(below.get(key), value) for key, value in above.items()}}
