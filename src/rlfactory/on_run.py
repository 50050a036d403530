"""The commands that go on from a run folder: resume, sample, inspect, export, evaluate, sync."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.problems import PlanError, Problem, key_of
from rlfactory.ranks import follows

EVALUATED = (
    *("evaluation", "eval_rewards", "scoring", "seed", "sample_batch", "prompt_cache"),
    *("reward", "prompts", "hardware", "schedule", "precision", "memory"),
)


def sample(words: Sequence[str]) -> int:
    """Draw pictures with a run's weights."""
    from rlfactory.arguments import sample_arguments

    a = sample_arguments(words)
    _require_run(a.run)
    silence_notices()
    from rlfactory import trained

    return trained.sample(a.run, a.prompt, a.count, a.seed, a.out, a.weights, a.best)


def inspect(words: Sequence[str]) -> int:
    """Look inside a run's language model."""
    from rlfactory.arguments import inspect_arguments

    a = inspect_arguments(words)
    _require_run(a.run)
    silence_notices()
    from rlfactory import trained

    return trained.inspect(a.run, a.weights, a.prompts, a.best)


def export(words: Sequence[str]) -> int:
    """Write a run's weights for other libraries."""
    from rlfactory.arguments import export_arguments

    a = export_arguments(words)
    weights = a.weights or _require_run(a.run)["evaluation"]["weights"]
    silence_notices()
    from rlfactory import trained

    return trained.export(a.run, a.to, a.merge, weights, a.best)


def evaluate(words: Sequence[str]) -> int:
    """Evaluate a run's weights, with other settings where overrides say so."""
    best, words = "--best" in words, [word for word in words if word != "--best"]
    if not words or "=" in words[0]:
        raise PlanError([Problem("RUN", "no run folder named", "rlfactory evaluate RUN")])
    from rlfactory.plan import make_plan
    from rlfactory.request import SEARCHPATH, amend

    run, overrides = Path(words[0]), words[1:]
    message = f"can't be changed in an evaluation; allowed are {', '.join(EVALUATED)}"
    refused = [key for o in overrides if (key := key_of(o)).split(".")[0] not in EVALUATED]
    if refused := [key for key in refused if key != SEARCHPATH]:
        raise PlanError([Problem(key, message) for key in refused])
    composed = amend(_require_run(run), overrides)
    plan = make_plan(composed.values, composed.choices, composed.problems)
    silence_notices()
    from rlfactory import trained

    return trained.evaluate(run, plan.config, best)


def sync(words: Sequence[str]) -> int:
    """Tell a logger everything that run folders hold, as if it had never heard of them."""
    from rlfactory.resume import require_owner
    from rlfactory.run.folder import RunFolder
    from rlfactory.syncing import chosen_logger, told

    runs, overrides = [w for w in words if "=" not in w], [w for w in words if "=" in w]
    if not runs:
        raise PlanError([Problem("RUN", "no run folder named", "rlfactory sync RUN")])
    configs = {Path(run): chosen_logger(_require_run(Path(run)), overrides) for run in runs}
    for run in configs:
        require_owner(run, take_over=False)
        if not RunFolder(run).metrics.is_file():
            raise PlanError([Problem(str(run), "has no metrics.jsonl yet")])
    silence_notices()
    return max([told(run, config) for run, config in configs.items()])


def resume(words: Sequence[str]) -> int:
    """Go on with a run."""
    from rlfactory.arguments import resume_arguments
    from rlfactory.launch import Sitting, require_possible, sit
    from rlfactory.resume import is_done, require_owner

    a = resume_arguments(words)
    frozen = _require_run(a.run)
    if a.until is not None and a.until > frozen["iterations"]:
        message = f"is {a.until}, and the run has {frozen['iterations']} iterations"
        raise PlanError([Problem("--until", message)])
    silence_notices()
    if follows(frozen["hardware"]):
        from rlfactory.following import follow

        return follow(a.run, frozen, a.until, a.force)
    if is_done(a.run, frozen) and not a.force:
        return 0
    require_owner(a.run, a.take_over)
    require_possible(frozen)
    return sit(Sitting(a.run, a.until, a.force, a.take_over), frozen)


def silence_notices() -> None:
    """What libraries say on import about optional packages is not for users."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def _require_run(run: Path) -> Mapping[str, Any]:
    import yaml

    from rlfactory.older import filled, frozen_problems

    path = run / "config.yaml"
    if not os.path.isfile(path):  # false for names that are too long as well
        message = "is no run folder: it holds no config.yaml"
        raise PlanError([Problem(str(run), message, "rlfactory, which makes one")])
    try:
        frozen = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise PlanError([Problem(str(path), f"can't be read: {error}")]) from error
    if not isinstance(frozen, dict):
        raise PlanError([Problem(str(path), "holds no configuration")])
    if problems := frozen_problems(frozen):
        raise PlanError([Problem(f"{path}: {p.key}", p.message) for p in problems])
    return filled(frozen)
