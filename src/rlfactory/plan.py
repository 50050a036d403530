"""From a composed configuration to a plan: checked and derived before torch is imported."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from rlfactory.cost import accumulated, evaluations, per_iteration
from rlfactory.crossings import RULES
from rlfactory.crossings.base import Traits
from rlfactory.crossings.cautions import cautions
from rlfactory.problems import PlanError, Problem, unknown_key
from rlfactory.settings import COMPONENTS, GROUPS, Settings
from rlfactory.signature import Signature, read
from rlfactory.source import TargetError
from rlfactory.targets import holds_nodes, is_allowed, where_to_get
from rlfactory.typecheck import describe, fits
from rlfactory.types import Component

Config = Mapping[str, Any]

MISSING = "???"


@dataclass(frozen=True)
class Plan:
    """A configuration that can run: values, choices, what follows from them, and its folder.

    `evaluations` of the network are what an iteration on images takes.
    """

    config: Config
    choices: Mapping[str, str]
    derived: Mapping[str, str]
    run_dir: Path
    evaluations: float

    def frozen(self) -> str:
        """The YAML that the run reads."""
        content = {**self.config, "run_dir": str(self.run_dir), "choices": dict(self.choices)}
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)

    def table(self, *, color: bool = False) -> str:
        """The choices, what follows from them, and the run folder, a line each."""
        rows = {group: self.choices[group] for group in GROUPS if group in self.choices}
        rows |= {**self.derived, "run folder": str(self.run_dir)}
        width = max(map(len, rows))
        bold, dim, plain = ("\033[1m", "\033[2m", "\033[0m") if color else ("", "", "")
        style = {"algo": bold} | dict.fromkeys(self.derived, dim)
        lines = []
        for name, text in rows.items():
            begin = style.get(name, "")
            lines.append(f"{begin}{name:<{width}}  {text}{plain if begin else ''}")
        return "\n".join(lines)


def make_plan(config: Config, choices: Mapping[str, str], found: Sequence[Problem] = ()) -> Plan:
    """Check everything and derive the rest; a PlanError holds all problems, `found` first."""
    problems = [*found, *_root_problems(config)]
    signatures: dict[str, Signature] = {}
    for key in COMPONENTS:
        problems += _component_problems(config, key, config.get(key), signatures)
    problems += _nested_problems(config, "eval_rewards", config.get("eval_rewards"), signatures)
    traits = {key: signature.traits for key, signature in signatures.items()}
    # of a component without a signature nothing is known, whatever it holds
    faulty = [*(p.key for p in problems), *(key for key in COMPONENTS if key not in signatures)]
    for rule, reads in RULES.items():
        # a rule is silent about what is already known to be wrong
        if not any(_touch(key, read) for key in faulty for read in reads):
            problems += rule(config, traits)
    if problems:
        raise PlanError(problems)
    traits = {key: signature.traits for key, signature in signatures.items()}
    return Plan(
        config,
        _relevant(choices, traits),
        _derive(config, traits),
        _run_dir(config, choices),
        per_iteration(config, traits),
    )


def _relevant(choices: Mapping[str, str], traits: Traits) -> dict[str, str]:
    """The choices that mean something: tokens know no noise levels, their algorithms have
    advantages of their own, and their models compute in float32; steps bring their own times.
    """
    of_images = {"schedule", "window", "advantage", "precision", "memory"}
    hidden = of_images if traits["model"].get("process") == "tokens" else set()
    hidden |= {"times"} if traits["algo"].get("needs") != "forward_process" else {"window"}
    return {group: option for group, option in choices.items() if group not in hidden}


def _touch(one: str, other: str) -> bool:
    """Whether two keys are the same, or one lies below the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _root_problems(config: Config) -> Iterator[Problem]:
    known = {f.name for f in fields(Settings)} | {*COMPONENTS}
    for key in config.keys() - known:
        yield unknown_key(key, known)
    yield from _typed(config, Settings, "")


def _typed(values: Config, schema: Any, prefix: str) -> Iterator[Problem]:
    """Check a mapping against a dataclass."""
    for field in fields(schema):
        key = f"{prefix}{field.name}"
        if field.name not in values:
            yield Problem(key, "is missing", f"{key}=...")
        elif isinstance(field.type, type) and is_dataclass(field.type):
            inner = values[field.name]
            if not isinstance(inner, Mapping):
                yield Problem(key, f"is {inner!r}; allowed is a mapping")
                continue
            names = {f.name for f in fields(field.type)}
            for extra in inner.keys() - names:
                yield unknown_key(f"{key}.{extra}", names)
            yield from _typed(inner, field.type, f"{key}.")
        else:
            yield from _value_problems(key, values[field.name], field.type)


def _value_problems(key: str, value: object, kind: Any) -> Iterator[Problem]:
    if value == MISSING:
        yield Problem(key, "has no value yet", f"{key}=...")
    elif not fits(value, kind):
        shown = "null" if value is None else repr(value)
        is_price = kind is Component and isinstance(value, int | float)
        remedy = f"{key}.value" if is_price else f"{key}=..."  # a number for what has a value
        finite = ", and finite" if value in (math.inf, -math.inf) else ""
        yield Problem(key, f"is {shown}; allowed is {describe(kind)}{finite}", remedy)


def component_problems(config: Config, key: str) -> list[Problem]:
    """The faults of one component by itself, whatever stands beside it."""
    signatures: dict[str, Signature] = {}
    if problems := [*_component_problems(config, key, config.get(key), signatures)]:
        return problems
    traits = {name: signature.traits for name, signature in signatures.items()}
    alone = [rule for rule, reads in RULES.items() if reads == (key,)]
    return [problem for rule in alone for problem in rule(config, traits)]


def _component_problems(
    config: Config, key: str, node: object, signatures: dict[str, Signature]
) -> Iterator[Problem]:
    """The faults of a mapping that names a target, and of those inside it."""
    target = node.get("_target_") if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping) or not isinstance(target, str):
        message = "has no _target_, the import path of what it is"
        if isinstance(node, Mapping) and key in node:
            message += f"; a file that says {key}: begins with # @package _global_"
        yield Problem(key, message, f"{key}=...")
        return
    if not is_allowed(target, _trusted(config)):
        yield _blocked(f"{key}._target_", target)
        return
    try:
        signature = signatures[key] = read(target)
    except TargetError as error:
        message = f"{target} can't be found: {error} ({where_to_get(target)})"
        yield Problem(f"{key}._target_", message)
        return
    for name, value in node.items():
        if name in signature.parameters:
            kind = signature.parameters[name].kind
            yield from _value_problems(f"{key}.{name}", value, kind)
        elif name != "_target_" and not signature.takes_any:
            yield unknown_key(f"{key}.{name}", signature.parameters)
        if holds_nodes(value):
            yield from _nested_problems(config, f"{key}.{name}", value, signatures)
    for name, parameter in signature.parameters.items():
        if parameter.required and name not in node:
            yield Problem(f"{key}.{name}", "is missing", f"+{key}.{name}=...")


def _nested_problems(
    config: Config, key: str, value: object, signatures: dict[str, Signature]
) -> Iterator[Problem]:
    """The faults of the components that a value is or holds."""
    if not isinstance(value, Mapping | list):
        return
    if isinstance(value, Mapping) and "_target_" in value:
        yield from _component_problems(config, key, value, signatures)
        return
    for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from _nested_problems(config, f"{key}.{name}", inner, signatures)


def _blocked(key: str, target: str) -> Problem:
    package = target.split(".")[0]
    if package == "rlfactory":
        return Problem(key, f"{target} is no component, and trust opens none of our own package")
    message = f"{target} lies outside the packages that may be named here"
    return Problem(key, message, f"trust=[{package}]")


def _trusted(config: Config) -> list[str]:
    trust = config.get("trust")
    return [str(package) for package in trust] if isinstance(trust, list) else []


def _derive(config: Config, traits: Traits) -> dict[str, str]:
    """The arithmetic that follows from the budget, spelled out, and what to be aware of."""
    from rlfactory.estimate.advice import notes, told  # a refusal needs none of it
    from rlfactory.estimate.memory import estimate

    groups, size = config["prompts_per_iteration"], config["group_size"]
    samples, updates = groups * size, config["updates_per_iteration"]
    in_all = updates * config["epochs"]
    several = f"{config['epochs']} passes x {updates} = {in_all}"
    passes = several if in_all > updates else f"{updates}"
    iterations = config["iterations"]
    facts = {
        "samples": f"{groups} groups x {size} = {samples} an iteration,"
        f" {samples // updates} an update",
        "updates": f"{passes} an iteration x {iterations} = {in_all * iterations}",
        "micro-batches": accumulated(config, traits),
        "evaluations": evaluations(config, traits),
    }
    said = [*cautions(config, traits)]
    if traits["model"].get("media") == "images":
        facts["evaluations"] += f"; {per_iteration(config, traits):,.0f} an iteration"
        found = estimate(config, traits)
        facts["peak memory"] = told(config, found)
        said += notes(config, traits, found)
    return facts | {f"note {i}": text for i, text in enumerate(said, start=1)}


def _run_dir(config: Config, choices: Mapping[str, str]) -> Path:
    if config["run_dir"]:
        return Path(config["run_dir"]).expanduser()
    words = [choices.get(group, "custom") for group in ("algo", "model", "reward")]
    moment = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    return Path("outputs") / f"{moment}_{'-'.join(words)}-s{config['seed']}"
