"""Plans: a composed configuration is checked, and its budget derived, without importing torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from textwrap import shorten
from typing import Any

import yaml

from rlfactory.config.checks.base import Config, Traits, unread_groups
from rlfactory.config.checks.prompt_files import undownloaded_prompts
from rlfactory.config.checks.rules import rule_problems
from rlfactory.config.checks.warnings import cautions
from rlfactory.config.evaluation_prompts import (
    describe_evaluation,
    describe_sets,
    evaluation_draws,
    row_notes,
)
from rlfactory.config.memory.devices import describe_device, describe_processes, process_notes
from rlfactory.config.memory.peak_memory import describe_memory, estimate, memory_notes
from rlfactory.config.named_models import shown_model
from rlfactory.config.nfe import (
    describe_accumulation,
    describe_nfe,
    draws_nothing,
    nfe_per_iteration,
    passes_per_prediction,
)
from rlfactory.config.problems import PlanError, Problem
from rlfactory.config.schema.root import COMPONENTS, GROUPS
from rlfactory.config.schema.signature import Signature
from rlfactory.config.schema_problems import all_node_problems, root_problems
from rlfactory.model.pipelines.local_models import height_and_width
from rlfactory.utils.dotted_keys import with_absolute_paths
from rlfactory.utils.live_objects import references_in
from rlfactory.utils.text import typed_path


@dataclass(frozen=True, repr=False)
class Plan:
    """A checked configuration.

    Attributes:
        config: all values.
        choices: the option chosen of each group that matters here.
        derived: rows of the printed plan that follow from the values.
        run_dir: the run folder.
        evaluations: forward passes of the network in an iteration on images; 0 for texts.
        model: the name of the model, which is that of its option or the last part of its path.
    """

    config: Config
    choices: Mapping[str, str]
    derived: Mapping[str, str]
    run_dir: Path
    evaluations: float
    model: str

    def frozen(self) -> str:
        """The content of the run folder's config.yaml."""
        choices = {**self.choices, "model": self.model}
        content = {**self.config, "run_dir": str(self.run_dir), "choices": choices}
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)

    def __repr__(self) -> str:
        return self.table()

    def table(self, *, color: bool = False) -> str:
        """The printed plan: choices, derived rows and the run folder, a line each."""
        chosen = {group: self.choices[group] for group in GROUPS if group in self.choices}
        rows = {g: _described_choice(name, self.config.get(g)) for g, name in chosen.items()}
        if self.model != self.choices["model"]:
            rows["model"] = f"{self.choices['model']}: {self.model}"
        if rows.get("recipe") == "none":
            del rows["recipe"]
        rows |= {**self.derived, "run folder": str(self.run_dir)}
        width = max(map(len, rows))
        style = {"algo": "\033[1m", **dict.fromkeys(self.derived, "\033[2m")} if color else {}
        lines = {name: f"{name:<{width}}  {text}" for name, text in rows.items()}
        styled = (f"{style[n]}{line}\033[0m" if n in style else line for n, line in lines.items())
        return "\n".join(styled)


def _described_choice(choice: str, node: Any) -> str:
    """An option or object by name, with the options that it combines, or what is in memory."""
    names = references_in(node)
    if "model" in names:
        return f"in memory, with the settings of {choice}"
    if parts := [name.partition(".")[2] for name in names if "." in name]:
        return f"{choice}: {', '.join(parts)} in memory"
    if parts := [*(node or {}).get("of", ())]:
        return f"{choice}: {', '.join(parts)}"
    return f"{choice}, in memory" if names else choice


def make_plan(
    config: Config,
    choices: Mapping[str, str],
    found: Sequence[Problem] = (),
    defaults: Config | None = None,
) -> Plan:
    """Check a configuration and derive its budget.

    Args:
        config: the composed values.
        choices: the option chosen of each group.
        found: problems that composing found.
        defaults: the values before single keys were overridden: of them the path of the model, by
            which it has a name.

    Raises:
        PlanError: with all problems, `found` first.
    """
    traits = checked_traits(config, found)
    hidden = unread_groups(traits)  # their choices have no effect
    own_path = (defaults or config)["model"].get("path")
    model = shown_model(choices.get("model", "custom"), config["model"].get("path"), own_path)
    return Plan(
        with_absolute_paths(config),
        {group: option for group, option in choices.items() if group not in hidden},
        _derive(config, traits),
        _run_dir(config, {**choices, "model": model}),
        nfe_per_iteration(config, traits),
        model,
    )


def checked_traits(config: Config, found: Sequence[Problem]) -> Traits:
    """The constants of the components' classes in a configuration that has no problem.

    Arguments and errors are those of `make_plan`.
    """
    signatures: dict[str, Signature] = {}
    # an override that could not be read or applied leaves its key without a value
    faulty_words = {problem.key for problem in found}
    own = [*root_problems(config), *all_node_problems(config, signatures)]
    problems = [*found, *(problem for problem in own if problem.key not in faulty_words)]
    traits = {key: signature.class_constants for key, signature in signatures.items()}
    # rules can't read the traits of a component without a signature
    faulty = [*(p.key for p in problems), *(key for key in COMPONENTS if key not in signatures)]
    problems += rule_problems(config, traits, faulty)
    if problems:
        raise PlanError(problems)
    return traits


def with_notes(plan: Plan, notes: Sequence[str]) -> Plan:
    """A plan with further notes, numbered on from its own."""
    first = 1 + sum(name.startswith("note ") for name in plan.derived)
    numbered = {f"note {i}": text for i, text in enumerate(notes, start=first)}
    return replace(plan, derived={**plan.derived, **numbered})


def _derive(config: Config, traits: Traits) -> dict[str, str]:
    """Rows of the printed plan: samples, updates, forward passes, memory, notes."""
    groups, size = config["prompts_per_iteration"], config["group_size"]
    samples, updates, epochs = groups * size, config["updates_per_iteration"], config["epochs"]
    total, iterations = updates * epochs, config["iterations"]
    passes = f"{epochs} passes x {updates} = {total}" if epochs > 1 else f"{updates}"
    rows = {
        "a sample": describe_sample(config, traits),
        "trained": describe_learning(config),
        "samples": f"{groups} groups x {size} = {samples} an iteration,"
        f" {samples // updates} an update",
        "updates": f"{passes} an iteration x {iterations} = {total * iterations}",
        "micro-batches": describe_accumulation(config, traits),
        "passes": describe_nfe(config, traits),
    }
    if processes := describe_processes(config):
        rows["processes"] = processes
    if config.get("begin_from"):
        rows["begins from"] = describe_beginning(config)
    evaluated = describe_evaluation(config, traits)
    rows["evaluated on"] = f"{evaluated}; {describe_draws(config, traits)}"
    if sets := describe_sets(config):
        rows["also on"] = sets
    rows["device"] = describe_device(config)
    remarks = [*cautions(config, traits), *process_notes(config), *row_notes(config)]
    remarks += map(str, undownloaded_prompts(config))
    if traits["model"].get("media") != "texts":
        rows["passes"] += f"; {nfe_per_iteration(config, traits):,.0f} an iteration"
    estimated = estimate(config, traits)
    rows["peak memory"] = describe_memory(config, estimated)
    remarks += memory_notes(config, traits, estimated)
    return rows | {f"note {i}": text for i, text in enumerate(remarks, start=1)}


def _run_dir(config: Config, choices: Mapping[str, str]) -> Path:
    if config["run_dir"]:
        return typed_path(config["run_dir"])
    words = [choices.get(group, "custom") for group in ("algo", "model", "reward")]
    timestamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    folder = Path("outputs") / f"{timestamp}_{'-'.join(words)}-s{config['seed']}"
    # another run of this second
    others = (folder.with_name(f"{folder.name}_{number}") for number in count(2))
    return next(path for path in chain([folder], others) if not path.exists())


SHOWN = 60
"""Characters of a system prompt, and of the names of modules."""
ROLES = {"none": "text prompts as they are", "user": "text prompts as user's messages"}


def describe_sample(config: Config, traits: Traits) -> str:
    """The samples: size, steps and guidance of images; length, temperature and form of texts."""
    model, dynamics = config["model"], config["dynamics"]
    if traits["model"].get("media") != "texts":
        edges = [] if model.get("size") is None else height_and_width(model["size"])
        size = [" x ".join(map(str, edges)) + " pixels"] if edges else []
        names = ("frames", "guidance", "embedded_guidance")
        given = {name: model[name] for name in names if model.get(name) is not None}
        options = [f"{name.replace('_', ' ')} {value:g}" for name, value in given.items()]
        return ", ".join([*size, f"{config['schedule']['steps']} steps", *options])
    parts = []
    if traits["algo"].get("samples_from") == "data":
        most = config["algo"].get("length")
        parts.append("learned whole" if most is None else f"learned up to {most} tokens")
    if not draws_nothing(config, traits):
        neutral = {"temperature": None, "top_p": 1, "top_k": 0}
        drawn = [f"{n} {dynamics[n]:g}" for n, v in neutral.items() if dynamics.get(n, v) != v]
        parts += [f"at most {dynamics.get('length', '?')} tokens", *drawn]
    by_template = "text prompts by the chat template if there is one"
    parts.append(ROLES.get(model.get("text_role"), by_template))
    if system := model.get("system_prompt"):
        parts.append(f"system prompt {shorten(system, SHOWN, placeholder='...')!r}")
    return ", ".join(parts)


def describe_beginning(config: Config) -> str:
    """The weights that a run begins from, what becomes of them, and the reference."""
    begun = config["begin_from"]
    if config.get("begin_as") == "merged":
        merged = f"the adapters of {begun}, merged into the network (begin_as)"
        return f"{merged}; the reference is that network"
    is_start = config["reference_from"] == "start"
    reference = "the reference too" if is_start else "the reference is the model without them"
    return f"the weights of {begun}; {reference} (reference_from)"


def describe_learning(config: Config) -> str:
    """The weights that are trained, and at which learning rate."""
    model, rate = config["model"], config["optimizer"].get("lr")
    if model.get("finetune") != "lora":
        trained = "all weights"
    else:
        named = model.get("lora_targets") or "the default modules"
        if not isinstance(named, str):
            named = shorten(", ".join(map(str, named)), SHOWN, placeholder="...")
        trained = f"LoRA of rank {model['lora_rank']}, alpha {model['lora_alpha']:g} on {named}"
    return trained if rate is None else f"{trained}; learning rate {rate:g}"


def describe_draws(config: Config, traits: Traits) -> str:
    """The samples and passes of one evaluation."""
    if draws_nothing(config, traits):
        return "the losses of their rows, and no samples"
    draws, evaluation = evaluation_draws(config), config["evaluation"]
    text = f"{draws:,} samples an evaluation, with those for the diversity"
    if traits["model"].get("media") == "texts":
        return text
    steps = int(evaluation["steps"] or config["schedule"]["steps"])
    passes = draws * passes_per_prediction(config) * steps
    at = f" at {evaluation['size']} pixels" if evaluation["size"] else ""
    return f"{text}{at}: {passes:,} passes"
