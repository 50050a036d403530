"""Learning rates that follow what is trained: adapters, all weights, a value head."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rlfactory.config.layers import Layer

AUTO = "auto"


def with_rates(
    values: Mapping[str, Any],
    choices: Mapping[str, str],
    layers: Sequence[Layer],
    typed: Collection[str],
) -> tuple[dict[str, Any], list[str]]:
    """The values with numbers for rates that are `auto`, and notes on rates that were replaced.

    A file that states `optimizer.lr` states it for the `model.finetune` of then. Where the other
    kind of training is typed, adapters would learn nothing, or all weights break, at that rate; it
    is then that of `learning_rate`.

    `layers` are the files that were merged, in their order; none: no file's rate is replaced.
    `typed` are the keys of the command line.
    """
    changed, notes = dict(values), list[str]()
    # a faulty or missing part is the plan's to report
    rates, model, optimizer = (
        _node(values, key) for key in ("learning_rate", "model", "optimizer")
    )
    finetune = model.get("finetune", "full")
    stated = None if "optimizer.lr" in typed else _stated_for(choices, layers)
    if stated is not None and stated != finetune and finetune in rates:
        notes = [
            f"optimizer.lr={rates[finetune]}, of model.finetune={finetune}:"
            f" {optimizer.get('lr')} is stated for {stated}"
        ]
        changed["optimizer"] = {**optimizer, "lr": rates[finetune]}
    elif optimizer.get("lr") == AUTO:
        changed["optimizer"] = {**optimizer, "lr": _rate(rates, finetune)}
    if model.get("value_lr") == AUTO:
        kind = "head" if model.get("value_path") is None else "full"
        changed["model"] = {**model, "value_lr": _rate(rates, kind)}
    return changed, notes


def _rate(rates: Mapping[str, Any], kind: Any) -> Any:
    """A rate by kind; one that is no number, or of no kind, is reported at that key alone."""
    rate = rates.get(kind, 1.0) if rates else AUTO
    return rate if rate == AUTO or isinstance(rate, int | float) else 1.0


def _stated_for(choices: Mapping[str, str], layers: Sequence[Layer]) -> object:
    """The `model.finetune` for which a file states the learning rate; None if none states it."""
    finetune = stated = None
    for layer in layers:
        if layer.is_for("model", choices):
            finetune = _node(layer.values, "model").get("finetune", finetune)
        if layer.is_for("optimizer", choices):
            rate = _node(layer.values, "optimizer").get("lr")
            stated = stated if rate is None else None if rate == AUTO else finetune
    return stated


def _node(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    node = values.get(key)
    return node if isinstance(node, Mapping) else {}
