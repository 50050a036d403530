"""The problems of keys and values by themselves: unknown, missing, of the wrong type."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from rlfactory.config.problems import Problem, closest, unknown_key, untaken_key
from rlfactory.config.schema.root import COMPONENTS, GROUPS, RootConfig
from rlfactory.config.schema.signature import Signature, read_signature
from rlfactory.config.schema.static_names import TargetError
from rlfactory.config.schema.targets import contains_targets, is_allowed, trusted_by
from rlfactory.utils.types import TargetNode, describe, literals, matches

Config = Mapping[str, Any]

MISSING, LACKING = "???", "is missing"
READ_BY_PLAN: Mapping[str, tuple[str, ...]] = {
    "schedule": ("steps",),
    "precision": ("weights", "rollout", "learning"),
    "memory": ("gradient_checkpointing", "offload_weights", "vae_slicing", "attention"),
    "model": ("path", "finetune"),
}
"""Keys that each component of a group must take, a user's own too: the plan reads them."""


def root_problems(config: Config, *, may_have_others: bool = False) -> Iterator[Problem]:
    """The problems of the keys that belong to no component; unknown ones may be none."""
    return typed_problems(config, RootConfig, "", may_have_others)


def typed_problems(
    values: Config, schema: Any, prefix: str = "", may_have_others: bool = False
) -> Iterator[Problem]:
    """The problems of a mapping whose keys and types a dataclass describes."""
    known = {f.name for f in fields(schema)} | {*(COMPONENTS if schema is RootConfig else ())}
    for extra in () if may_have_others else values.keys() - known:
        yield unknown_key(f"{prefix}{extra}", known)
    for field in fields(schema):
        key = f"{prefix}{field.name}"
        if field.name not in values:
            yield Problem(key, LACKING)
        elif isinstance(field.type, type) and is_dataclass(field.type):
            inner = values[field.name]
            if not isinstance(inner, Mapping):
                names = ", ".join(f.name for f in fields(field.type))
                message = f"is {inner!r}; allowed is a mapping of {names}"
                yield Problem(key, message, f"rlfactory explain {key}")
                continue
            yield from typed_problems(inner, field.type, f"{key}.", may_have_others)
        else:
            yield from _value_problems(key, values[field.name], field.type)


def _value_problems(key: str, value: object, kind: Any) -> Iterator[Problem]:
    if value == MISSING:
        yield Problem(key, f"has no value yet; type {key}=VALUE")
    elif not matches(value, kind):
        shown = "null" if value is None else repr(value)
        limit = ", and finite" if value in (math.inf, -math.inf) else ""
        limit = ", of at most 64 bits" if isinstance(value, int) and abs(value) >= 2**63 else limit
        message = f"is {shown}; allowed is {describe(kind)}{limit}"
        yield Problem(key, message, _value_fix(key, value, kind))


def _value_fix(key: str, value: object, kind: Any) -> str:
    """An override that replaces a value of the wrong type; empty where nothing is meant by it."""
    if kind is TargetNode and isinstance(value, int | float):
        return f"{key}.value"  # a number for a component with a `value`, such as a coefficient
    if isinstance(value, str) and matches([value], kind):
        return f"{key}=[{value}]"
    if isinstance(value, int | float) and matches("text", kind):
        return f'{key}="{str(value).lower()}"'
    if isinstance(value, float) and math.isfinite(value) and matches(round(value), kind):
        return f"{key}={round(value)}"  # 1e3
    guess = closest(str(value).lower(), literals(kind))
    return f"{key}={guess}" if guess else ""


def all_node_problems(config: Config, signatures: dict[str, Signature]) -> Iterator[Problem]:
    """The problems of all components of a configuration; adds to `signatures`."""
    for key in COMPONENTS:
        yield from node_problems(config, key, config.get(key), signatures)
    for key in ("eval_rewards", "eval_sets"):
        yield from nested_problems(config, key, config.get(key), signatures)


def node_problems(
    config: Config, key: str, node: object, signatures: dict[str, Signature]
) -> Iterator[Problem]:
    """The problems of a component's node and of the nodes inside it; adds to `signatures`."""
    target = node.get("_target_") if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping) or not isinstance(target, str):
        message = "has no _target_, the import path of what it is"
        if isinstance(node, str) and key in GROUPS:
            message += f"; a file chooses it in its defaults: - override /{key}: {node}"
        if isinstance(node, Mapping) and key in node:
            message += f"; a file that says {key}: begins with # @package _global_"
        yield Problem(key, message, f"rlfactory list {key}" if key in GROUPS else "")
        return
    if (problem := _unusable_target(f"{key}._target_", target, trusted_by(config))) is not None:
        yield problem
        return
    try:
        signature = signatures[key] = read_signature(target)
    except TargetError as error:
        is_gpu = target.startswith("bitsandbytes.")
        here = "install it, or type this in the folder that has it, which is searched too"
        hint = "pip install 'rlfactory[gpu]'" if is_gpu else here
        yield Problem(f"{key}._target_", f"{target} can't be found: {error} ({hint})")
        return
    for name, value in node.items():
        if name in signature.parameters:
            kind = signature.parameters[name].kind
            yield from _value_problems(f"{key}.{name}", value, kind)
        elif name != "_target_" and not signature.takes_any:
            yield unknown_key(f"{key}.{name}", signature.parameters)
        if contains_targets(value):
            yield from nested_problems(config, f"{key}.{name}", value, signatures)
    read = READ_BY_PLAN.get(key, ())
    for name, parameter in signature.parameters.items():
        if name not in node and (parameter.required or name in read):
            message = f"is missing; type +{key}.{name}=VALUE"
            yield Problem(f"{key}.{name}", message)
    for name in read:
        if name not in node and name not in signature.parameters:
            yield untaken_key(f"{key}.{name}", target)


def nested_problems(
    config: Config, key: str, value: object, signatures: dict[str, Signature]
) -> Iterator[Problem]:
    """The problems of all components in a value."""
    if not isinstance(value, Mapping | list):
        return
    if isinstance(value, Mapping) and "_target_" in value:
        yield from node_problems(config, key, value, signatures)
        return
    for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from nested_problems(config, f"{key}.{name}", inner, signatures)


def _unusable_target(key: str, target: str, trusted: Sequence[str]) -> Problem | None:
    """The problem of a target that may not be named."""
    if is_allowed(target, trusted):
        return None
    package = target.split(".")[0]
    if package == "rlfactory":
        return Problem(key, f"{target} is no component, and trust opens none of our own package")
    message = f"{target} lies outside the packages that may be named here"
    try:
        read_signature(target)
    except TargetError:
        return Problem(key, message)
    trust = f"trust=[{','.join([*trusted, package])}]"
    return Problem(key, f"{message}; {trust} allows this one", trust)
