"""The options that a file of a component leaves out: the defaults of its class's signature."""

from collections.abc import Mapping
from typing import Any

from rlfactory.config.schema.signature import parameters_of
from rlfactory.config.schema.targets import is_foreign_optimizer


def with_defaults(content: dict[str, Any], group: str) -> dict[str, Any]:
    """The content of a file of a `group`, with all options of its component, in their order.

    So every option is composed: shown, overridden without `+`, and written down. The content itself
    where nothing is added: of a file that builds on another of its group, which has them already,
    and of one without a class that can be read, which the plan reports.
    """
    whole = "_target_" in content
    node = content if whole else content.get(group)
    if not isinstance(node, Mapping) or _builds_on_another(content.get("defaults"), group):
        return content
    target = node.get("_target_")
    if not isinstance(target, str) or is_foreign_optimizer(target):
        return content
    parameters = parameters_of(node)
    options = {
        name: node.get(name, parameter.plain_default)
        for name, parameter in parameters.items()
        if name in node or parameter.plain_default is not ...
    }
    if options.keys() <= node.keys():
        return content
    filled = {"_target_": target, **options, **{k: v for k, v in node.items() if k not in options}}
    return filled if whole else {**content, group: filled}


def _builds_on_another(defaults: object, group: str) -> bool:
    """Whether a list of defaults merges another file of the group beneath."""
    names = [
        str(name).lstrip("/").partition("@")[0]
        for entry in (defaults if isinstance(defaults, list) else ())
        for name in (entry if isinstance(entry, Mapping) else [f"{group}/{entry}"])
    ]
    return any(n.partition("/")[0] == group and n != f"{group}/_self_" for n in names)
