"""Overrides: each is parsed and checked by itself, to report every mistake, and then composed."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rlfactory.config._hydra import CompositionError, Override, note_variables, parse
from rlfactory.config.checks.warnings import departures, nearest_published, unused_notes
from rlfactory.config.companions import (
    lacks_reward,
    media_forms,
    other_model,
    recipe_of,
    with_rates,
    with_tile,
)
from rlfactory.config.composites import expand_parts, spelled_out
from rlfactory.config.composition import ComposedConfig, Composition, resolved
from rlfactory.config.memory.devices import with_process_count
from rlfactory.config.named_models import begun_keys, with_options
from rlfactory.config.options import options, packaged_files_state
from rlfactory.config.override_problems import check_key, key_problems, override_problems, verified
from rlfactory.config.plan import Plan, make_plan, with_notes
from rlfactory.config.problems import PlanError, Problem, override_key
from rlfactory.config.schema.root import COMPONENTS, GROUPS
from rlfactory.config.user_code import untrusted
from rlfactory.config.words import SEARCHPATH, read, searched
from rlfactory.utils.dotted_keys import with_values


def compose(
    overrides: Sequence[str], *, verify: bool = True, as_named: bool = False
) -> ComposedConfig:
    """Compose a configuration, leaving out faulty overrides.

    Args:
        overrides: the words of the command.
        verify: whether what is suggested for unknown names is tried first.
        as_named: whether an option that is typed is meant whatever the model generates.

    Returns:
        The configuration, with a Problem for each override that was left out.

    Raises:
        PlanError: if nothing can be composed.
    """
    problems: list[Problem] = []
    overrides = spelled_out(overrides)
    places = searched(overrides)
    overrides = with_options(overrides, places)
    parsed = [o for word in overrides if (o := read(word, problems)) is not None]
    wrong = [p for o in parsed for p in override_problems(o, places, overrides)]
    problems += wrong
    asked = len(problems) - len(wrong)
    kept = [o for o in parsed if not any(p.key == o.key_or_group for p in wrong)]
    if groups := {p.key for p in wrong if p.key in GROUPS}:
        # which keys a component has depends on the faulty choice; the model's on no other
        left = {*COMPONENTS} - ({"model"} - groups)
        kept = [o for o in kept if o.key_or_group.split(".")[0] not in left]
    kept = [o for o in kept if o.key_or_group != SEARCHPATH]
    typed = [o for o in kept if _chooses(o, places)]
    try:
        found, chosen = _with_companions(typed, places, {o.key_or_group for o in kept}, as_named)
    except CompositionError as error:
        raise PlanError([*problems, _explained(error)]) from error
    contradicted, notes = other_model(found, overrides, places)
    problems += contradicted
    others = [o for o in kept if o not in typed]
    defaults = {**found.values, **_begun(found.values, others)}
    gone = [o for o in others if o.is_delete() and found.has_left_out(o.key_or_group)]
    if notes:
        others = [*parse(["evaluation.size=null"]), *others]  # in pixels of the other model
    mistakes = key_problems([o for o in others if o not in gone], defaults, places)
    problems += mistakes
    mistaken = {p.key for p in mistakes}
    others = [o for o in others if o not in gone and o.key_or_group not in mistaken]
    words = _lines([*chosen, *others])
    note_variables(words)
    try:
        values = resolved(defaults, found.choices, others, [*chosen, *others])
    except CompositionError as error:
        raise PlanError([*problems, _explained(error)]) from error
    if verify:
        problems = [*problems[:asked], *verified(problems[asked:], overrides, _has_plan)]
    composed = ComposedConfig(values, found.choices, problems, words, defaults, notes, found)
    return _complete(reset_retargeted(composed, words), places)


def _begun(values: Mapping[str, Any], typed: Sequence[Override]) -> dict[str, Any]:
    """The model's options where a run begins from other weights, which decide some of them."""
    set_to = {o.key_or_group: o.value() for o in typed if not o.is_delete()}
    given, model = set_to.get("begin_from", values.get("begin_from")), values.get("model")
    merges = set_to.get("begin_as", values.get("begin_as")) == "merged"
    if merges or not isinstance(given, str) or not isinstance(model, Mapping):
        return {}
    decided = begun_keys(given, set_to.get("model.path", model.get("path")))
    return {"model": {**model, **{k: v for k, v in decided.items() if k in model}}}


def _has_plan(words: Sequence[str]) -> bool | None:
    """Whether words give a plan; None where they can't even be composed."""
    composed = None
    try:
        composed = compose(words, verify=False)
        make_plan(composed.values, composed.choices, composed.problems)
    except PlanError:
        return None if composed is None or composed.problems else False
    return True


def _complete(composed: ComposedConfig, places: Sequence[str]) -> ComposedConfig:
    """A configuration with what follows: parts of composites, rates, batches, processes."""
    typed = {override_key(word) for word in composed.overrides}
    expanded = expand_parts(composed, places)
    found = with_tile(with_rates(expanded, typed), typed)
    return replace(found, values=with_process_count(found.values))


def _with_companions(
    chosen: Sequence[Override], places: Sequence[str], typed: Collection[str], as_named: bool
) -> tuple[Composition, list[Override]]:
    """The files of the options that are chosen and of those that follow, and their overrides."""
    chosen = [*chosen]
    found = Composition.of(_lines(chosen), places)
    if not as_named and (forms := media_forms(found)):
        words = [f"{group}={option}" for group, option in forms.items()]
        chosen = [*(o for o in chosen if o.key_or_group not in forms), *parse(words)]
        found = Composition.of(_lines(chosen), places)
    if lacks_reward(found, typed):
        chosen += parse(["reward=none"])
        found = Composition.of(_lines(chosen), places)
    is_typed = any(o.key_or_group == "recipe" for o in chosen)
    if not is_typed and (recipe := recipe_of(found, places)) is not None:
        chosen += parse([f"recipe={recipe}"])
        found = Composition.of(_lines(chosen), places)
    return found, chosen


def plan_from_words(*words: str) -> Plan:
    """The plan of the words typed after `rlfactory`, for scripts and notebooks."""
    return plan_composed(compose(words))


def plan_composed(composed: ComposedConfig) -> Plan:
    """The plan of a composed configuration; PlanError with all of its problems."""
    problems = [*composed.problems, *untrusted(composed.values, composed.overrides)]
    made = make_plan(composed.values, composed.choices, problems, composed.defaults)
    typed = unused_notes(made.config, composed.choices, made.choices, composed.overrides)
    return with_notes(made, [*composed.notes, *typed, *_departures(made)])


def _departures(made: Plan) -> list[str]:
    """A note on where a plan departs from the published run that is nearest to it."""
    nearest = nearest_published(made.choices)
    if nearest is None:
        return []
    words, is_of_this_pair = nearest
    if not is_of_this_pair:
        near = " ".join(words)
        return [f"no published run of this algorithm on this model is offered; nearest: {near}"]
    found = _published(tuple(words), packaged_files_state())
    text = departures(made.config, made.choices, found.values, found.choices)
    return [f"nearest published: {' '.join(words)}; here {text}"] if text else []


@lru_cache(maxsize=64)  # few, and each plan names one
def _published(words: tuple[str, ...], state: object) -> ComposedConfig:
    """A published run's configuration. `state` is part of the cache key: files may be edited."""
    return compose(words)


SHARED = frozenset({"optimizer.lr"})
"""Keys that keep their values when another `_target_` is typed: every optimizer has them."""


def reset_retargeted(composed: ComposedConfig, overrides: Sequence[str]) -> ComposedConfig:
    """Drop the option's values of components whose `_target_` was typed; typed keys stay."""
    values, choices = dict(composed.values), dict(composed.choices)
    typed = {override_key(o) for o in overrides}
    kept = typed | SHARED
    for group in COMPONENTS:
        node = values.get(group)
        if f"{group}._target_" in typed and isinstance(node, dict) and "_target_" in node:
            own = {k: v for k, v in node.items() if f"{group}.{k}" in kept}
            values[group], choices[group] = own, str(own["_target_"]).rpartition(".")[2]
    return replace(composed, values=values, choices=choices)


def override_frozen(frozen: Mapping[str, Any], overrides: Sequence[str]) -> ComposedConfig:
    """A frozen configuration with overrides; choosing an option replaces the entire group."""
    values = {key: value for key, value in frozen.items() if key != "choices"}
    choices, problems = dict(frozen.get("choices", {})), []  # type: dict[str, str], list[Problem]
    overrides = spelled_out(overrides)
    # which form a reward has depends on the model
    model = [f"model={n}" for n in (choices.get("model"),) if n in options("model")]
    parsed = [o for word in overrides if (o := read(word, problems)) is not None]
    places_typed = [o for o in overrides if override_key(o) == SEARCHPATH]
    for override in parsed:
        if (group := override.key_or_group) in GROUPS:
            composed = compose([*places_typed, *model, *_lines([override])])
            problems += composed.problems
            values[group], choices[group] = composed.values[group], composed.choices[group]
    for override in parsed:
        key = override.key_or_group
        if key in GROUPS or key == SEARCHPATH:
            continue
        if (mistake := check_key(override, values, searched(places_typed))) is not None:
            problems.append(mistake)
        else:
            values = with_values(values, {key: override.value()})
        if key == "eval_sets.of":  # without the rewards and counts of those that are left out
            sets = values["eval_sets"]
            names = sets["of"] if isinstance(sets["of"], list) else []
            for option in ("rewards", "counts"):
                kept = {name: value for name, value in sets[option].items() if name in names}
                values = with_values(values, {f"eval_sets.{option}": kept})
    composed = ComposedConfig(values, choices, problems, defaults=frozen)
    return _complete(composed, searched(places_typed))


def _lines(parsed: Sequence[Override]) -> list[str]:
    return [o.input_line for o in parsed if o.input_line]


def _chooses(override: Override, places: Sequence[str]) -> bool:
    """Whether an override chooses which files are merged, rather than setting a value."""
    key = override.key_or_group
    if key in GROUPS or "/" in key or override.package is not None:
        return True
    # a user's own group, which differs from a new key only by its folder
    return override.is_add() and "." not in key and bool(options(key, places))


def _explained(error: Exception) -> Problem:
    """An error of composing as a problem with a one-line message."""
    group, _, option = str(getattr(error, "missing_cfg_file", None) or "").partition("/")
    if group in GROUPS:
        message = f"there is no option {option}, which the defaults of a chosen file name"
        return Problem(group, message, f"rlfactory list {group}")
    parts = str(getattr(error, "full_key", None) or "").split(".")
    key = ".".join(parts[1:] if len(parts) > 1 and parts[0] == parts[1] else parts)
    text = str(error) if "line" in str(error) else str(error).split("\n    full_key")[0]
    if again := re.search(r"Multiple values for (\w+)\.|Could not override '.*@(\w+)'", text):
        group = again[1] or again[2]
        text = f"a file's defaults choose {group} by the line - override /{group}: OPTION"
    return Problem(key or "configuration", " ".join(text.split()))
