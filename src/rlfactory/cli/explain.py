"""`rlfactory explain`: what a key means, and the files and overrides that set it, in order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rlfactory.config._hydra import parse
from rlfactory.config.composition import ComposedConfig
from rlfactory.config.key_reference import comments, file_reference, key_reference, settings
from rlfactory.config.options import options
from rlfactory.config.override_problems import check_key, peer_name
from rlfactory.config.overrides import SHARED, compose
from rlfactory.config.problems import PlanError, Problem, override_key, unknown_name
from rlfactory.config.schema.root import COMPONENTS, GROUPS
from rlfactory.config.schema.signature import parameters_of
from rlfactory.config.schema.targets import is_foreign_optimizer
from rlfactory.config.words import read, searched, typed_value
from rlfactory.utils.dotted_keys import last_part, leaves, value_at


@dataclass(frozen=True)
class Origin:
    """A file and line, or an override, that sets a key, and the value as written there."""

    place: str
    value: str


def explain(words: Sequence[str]) -> int:
    """Print what a key, a group or an option means, and every file and override that sets it."""
    print(explain_words(words))
    return 0


def explain_words(words: Sequence[str]) -> str:
    """The text that `rlfactory explain WORDS` prints.

    The first word is a key, the last component of keys, `GROUP=OPTION`, or an option.

    Raises:
        PlanError: if an override is faulty, or the first word is not one of these.
    """
    first, *overrides = words or [""]
    group, _, option = first.partition("=")
    if option and group in GROUPS:
        return describe_option(group, option, overrides)
    if not group:
        raise PlanError([Problem("KEY", "no key named", "rlfactory explain optimizer.lr")])
    composed = compose(overrides)
    if composed.problems:
        raise PlanError(composed.problems)
    keys = [group]
    if value_at(composed.values, group, ...) is ...:
        present = [] if "." in group else [key for key, _ in leaves(composed.values)]
        keys = [key for key in present if last_part(key) == group]
    if option and keys:
        raise PlanError([Problem(first, f"{first} sets a key", f"rlfactory explain {keys[0]}")])
    first, typed = group, option
    if not keys and (groups := [g for g in GROUPS if first in options(g, searched(overrides))]):
        return "\n".join(describe_option(group, first, overrides) for group in groups)
    if not keys:
        raise PlanError([_unknown(first, typed, composed, searched(overrides))])
    return "\n".join(_describe(key, composed) for key in keys)


def _unknown(key: str, typed: str, composed: ComposedConfig, places: Sequence[str]) -> Problem:
    """The problem of a key that there is none of, and the command that explains what is meant."""
    if (meant := peer_name(key, typed, composed.values)) is not None:
        keys = [override_key(word) for words in meant.candidates[:1] for word in words]
        fix = f"rlfactory explain {keys[-1]}" if keys else ""
        return replace(meant, candidates=(), instead=None, fix=fix)
    problems: list[Problem] = []
    override = read(f"~{key}", problems)
    found = None if override is None else check_key(override, composed.values, places)
    return found or problems[0]


def describe_option(group: str, option: str, overrides: Sequence[str] = ()) -> str:
    """An option's file, and the keys that it leaves at the defaults of its class.

    Raises:
        PlanError: the group has no such option.
    """
    known = options(group, searched(overrides))
    if option not in known:
        fix = f"rlfactory explain {group}="
        raise PlanError([unknown_name(group, "option", option, sorted(known), fix)])
    path = known[option]
    lines = path.read_text(encoding="utf-8").splitlines()
    shown = [line for line in lines if not line.startswith("# @package")]
    left = {k: r for k, r in file_reference(path).items() if k not in comments(path)}
    shown += ["", "# defaults of its class:"] if left else []
    shown += [f"{key}: {found.default}  # {found.meaning}" for key, found in left.items()]
    return "\n".join([f"{group}={option}  ({path})", *(f"  {line}".rstrip() for line in shown)])


def _in_class(key: str, values: Mapping[str, object]) -> Iterator[Origin]:
    """The default in a class's signature, which is composed beneath the file of its option."""
    place, _, name = key.rpartition(".")
    node = value_at(values, place) if place.partition(".")[0] in COMPONENTS else None
    parameter = parameters_of(node).get(name)
    if parameter is None or parameter.plain_default is ...:
        return
    if not is_foreign_optimizer(target := str(value_at(node, "_target_"))):
        yield Origin(f"default of {target}", typed_value(parameter.plain_default))


def _describe(key: str, composed: ComposedConfig) -> str:
    """A key with its value, meaning and origins."""
    value = value_at(composed.values, key)
    reference = key_reference(key, composed.values, composed.choices)
    about = [f"  {line}" for line in reference.lines()]
    if isinstance(value, Mapping):
        option = composed.choices.get(key)
        below = ", ".join(f"{key}.{name}" for name in value if name != "_target_")
        return "\n".join([f"{key} = {option}" if option else key, *about, f"  keys: {below}"])
    lines = [f"{key} = {typed_value(value)}", *about]
    found = [*_in_class(key, composed.values), *origins(key, composed)]
    for number, origin in enumerate(found, start=1):
        last = "  <- counts" if number == len(found) else ""
        lines.append(f"  {origin.value:<12} {origin.place}{last}")
    return "\n".join(lines)


def origins(key: str, composed: ComposedConfig) -> list[Origin]:
    """Every file and override that sets a key, in order."""
    typed = [o.input_line or "" for o in parse(composed.overrides) if o.key_or_group == key]
    lines = [Origin(f"command line: {w}", w.partition("=")[2]) for w in typed if "=" in w]
    return [*_in_files(key, composed), *lines]


def defined_in(key: str, composed: ComposedConfig) -> str | None:
    """The file and line that a key's value comes from; None if no file sets it."""
    return next((origin.place for origin in reversed([*_in_files(key, composed)])), None)


def _in_files(key: str, composed: ComposedConfig) -> Iterator[Origin]:
    group, found = key.partition(".")[0], composed.composition
    is_retargeted = f"{group}._target_" in map(override_key, composed.overrides)
    if found is None or (is_retargeted and group in COMPONENTS and key not in SHARED):
        return
    for layer in found.layers:
        if found.has_effect(layer, group) and (given := settings(layer.path).get(key)):
            yield Origin(f"{layer.path}:{given.line}", given.value)
