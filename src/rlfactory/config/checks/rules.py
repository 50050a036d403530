"""Rules about combinations: choices that are each valid and together are not.

A rule is a function `require_...(config, traits)`. It takes the configuration and the traits of its
components (the constants of their classes, read from source) and yields a Problem for each fault.
What a component asks of its own options stands beside it, in its static method `validate`.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from rlfactory.config.checks import (
    chats,
    combined,
    data,
    model_files,
    networks,
    optimisation,
    prompt_files,
    sampling,
)
from rlfactory.config.checks.base import Config, Rule, Traits, unread_groups
from rlfactory.config.problems import Problem
from rlfactory.config.schema.signature import Signature, read_signature
from rlfactory.config.schema.targets import class_function, trusted_by
from rlfactory.config.schema_problems import node_problems
from rlfactory.utils.dotted_keys import value_at


def require_valid_options(config: Config, traits: Traits) -> Iterator[Problem]:
    """The demands of each component in use on its own options."""
    try:
        unread = unread_groups(traits)
    except _FaultyKeyError:  # what is read depends on the faulty choice
        unread = {"schedule", "window", "advantage", "times"}
    for key in traits:
        if key in unread:
            continue
        with suppress(_FaultyKeyError):
            yield from [*validated(key, config, traits)]


def validated(key: str, config: Config, traits: Traits) -> Iterator[Problem]:
    """The demands of the component at a key on its own options."""
    node = value_at(config, key, {})
    target = str(node.get("_target_"))
    known = "_target_" in node
    validate = class_function(target, "validate", trusted_by(config)) if known else None
    if validate is None:
        return
    signature = read_signature(target)
    options = {name: given.plain_default for name, given in signature.parameters.items()}
    options |= {**signature.class_constants, **traits.get(key, {}), **node}
    for name, message, fix in validate(options, config):
        is_own = name.partition(".")[0] in options
        yield Problem(f"{key}.{name}" if is_own else name, message, fix)


_MODULES = (optimisation, sampling, data, combined, prompt_files, chats, model_files, networks)
RULES: tuple[Rule, ...] = (
    *(
        rule
        for module in _MODULES
        for name, rule in vars(module).items()
        if name.startswith("require_") and rule.__module__ == module.__name__
    ),
    require_valid_options,
)
"""Each rule, in the order of report."""


def rule_problems(config: Config, traits: Traits, faulty: Collection[str]) -> Iterator[Problem]:
    """The problems that rules find; none of a rule that reads a key that has one already.

    Args:
        config: the composed values.
        traits: the class constants of the components that have a signature.
        faulty: keys with a problem of their own.
    """
    sound = _Sound(config, "", faulty) if faulty else config
    known = _Sound(traits, "", faulty) if faulty else traits
    for rule in RULES:
        with suppress(_FaultyKeyError):
            yield from [*rule(sound, known)]


def component_problems(config: Config, key: str) -> list[Problem]:
    """The problems of one component alone, without rules on combinations."""
    signatures: dict[str, Signature] = {}
    if problems := [*node_problems(config, key, config.get(key), signatures)]:
        return problems
    traits = {name: signature.class_constants for name, signature in signatures.items()}
    return [*rule_problems(config, traits, [other for other in config if other != key])]


class _FaultyKeyError(Exception):
    """A key was read that has a problem of its own."""


class _Sound(Mapping[str, Any]):
    """A mapping whose faulty keys can't be read."""

    def __init__(self, values: Mapping[str, Any], prefix: str, faulty: Collection[str]) -> None:
        self._values, self._prefix, self._faulty = values, prefix, faulty

    def __getitem__(self, name: str) -> Any:
        key = f"{self._prefix}{name}"
        if any(f"{key}.".startswith(f"{other}.") for other in self._faulty):
            raise _FaultyKeyError(key)
        value = self._values[name]
        is_above = any(other.startswith(f"{key}.") for other in self._faulty)
        if is_above and isinstance(value, Mapping):
            return _Sound(value, f"{key}.", self._faulty)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
