"""The run whose trained weights another begins with."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from rlfactory.crossings.base import Config, Traits
from rlfactory.problems import Problem


def begins_with_a_run(config: Config, traits: Traits) -> Iterator[Problem]:
    """`begin_from` is a folder of a run that has weights of the same kind of model."""
    place = config.get("begin_from")
    if place is None:
        return
    run = Path(place).expanduser()
    former = _model_of(run)
    if former is None:
        yield Problem("begin_from", f"{place} is no run folder: it holds no config.yaml of a run")
    elif not any((run / "checkpoints").glob("step_*")):
        yield Problem("begin_from", f"{place} holds no checkpoint yet", f"rlfactory resume {place}")
    elif fault := other_family(former, config["model"]):
        yield Problem("begin_from", f"{place} {fault}")


def other_family(former: Mapping[str, Any], model: Mapping[str, Any]) -> str | None:
    """What is wrong with beginning a model with a `former` one's weights, if anything is."""
    for key in ("_target_", "finetune"):
        old, new = former.get(key), model.get(key)
        if old != new:
            return f"trained a model whose {key} is {old}, and here it is {new}"
    return None


def _model_of(run: Path) -> Mapping[str, Any] | None:
    try:
        found = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
        model = found["model"]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        return None
    return model if isinstance(model, Mapping) else None
