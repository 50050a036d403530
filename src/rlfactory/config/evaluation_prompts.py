"""The prompts of evaluations in a plan: which they are, in words, and whether they are separate."""

import os
from collections.abc import Sequence
from pathlib import Path

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.problems import override_key
from rlfactory.config.prompt_data import available_prompts, counts_of, set_counts
from rlfactory.config.schema.targets import class_function, trusted_by
from rlfactory.config.words import typed_value
from rlfactory.prompts.ops.held_out import FEWEST
from rlfactory.utils.live_objects import is_reference, resolve
from rlfactory.utils.sizes import DIVERSITY_PROMPTS, DIVERSITY_SAMPLES
from rlfactory.utils.text import plural


def is_separate(config: Config, traits: Traits) -> bool:
    """Whether no evaluation prompt is trained on; of a data set, as its options say."""
    node = config["prompts"]
    if is_reference(node["_target_"]):
        return bool(getattr(resolve(node["_target_"]), "separate", False))
    if (own := traits["prompts"].get("separate", False)) is not None:
        return bool(own)
    if (counts := counts_of(node)) is not None:
        return counts.shared == 0
    return bool(node.get("eval_path") or node.get("eval_split") or node.get("held_out_share"))


def takes_all(typed: Sequence[str], frozen: Config, config: Config) -> list[str]:
    """The overrides of an evaluation that takes all rows of the prompts that were typed: a share is
    held out of data that are trained on.

    Where the prompts of the run, which is `frozen`, are at hand, those that are typed are evaluated
    beside them, so that it is known which are trained on. `config` has the overrides.
    """
    keys, node = {override_key(word) for word in typed}, config["prompts"]
    of_eval = {"prompts.eval_path", "prompts.eval_split"}
    if "path" not in node or not keys & {"prompts", "prompts.path", "prompts.split", *of_eval}:
        return [*typed]
    words, changed = [*typed], {}
    if not keys & {*of_eval, "prompts.held_out_share"}:
        changed = {"held_out_share": 0, "eval_path": None, "eval_split": None}
        own = frozen["prompts"]
        known = "eval_path" in own and os.path.isfile(Path(own["path"]).expanduser())
        if known and [key for key in keys if key.startswith("prompts")] == ["prompts.path"]:
            words = [word for word in words if override_key(word) != "prompts.path"]
            changed = {"path": own["path"], "eval_path": node["path"], "eval_split": None}
    new = {name: value for name, value in changed.items() if name in node}
    words += [f"prompts.{n}={typed_value(v)}" for n, v in new.items() if n != "path"]
    counts = counts_of({**node, **new})
    if counts is not None and "evaluation.prompts" not in keys:
        words.append(f"evaluation.prompts={counts.evaluated}")
    return words


def evaluation_samples(config: Config) -> int:
    """How many samples an evaluation scores, those of further prompt sets among them."""
    evaluation = config["evaluation"]
    prompts = evaluation["prompts"] + sum(set_counts(config).values())
    return int(evaluation["noises"] * prompts)


def evaluation_draws(config: Config) -> int:
    """How many samples an evaluation draws: those that are scored, and those for the diversity."""
    own, noises = available_prompts(config), config["evaluation"]["noises"]
    wanted = config["evaluation"]["prompts"]
    counts = [wanted if own is None else min(wanted, own), *set_counts(config).values()]
    scored = [int(noises * count) for count in counts]
    return sum(count + DIVERSITY_SAMPLES * min(DIVERSITY_PROMPTS, count) for count in scored)


def describe_sets(config: Config) -> str:
    """The further prompt sets of an evaluation, in words; empty without any."""
    counts, rewards = set_counts(config), config["eval_sets"]["rewards"]
    parts = [
        f"{count} of {name}" + (f" by {', '.join(named)}" if (named := rewards.get(name)) else "")
        for name, count in counts.items()
    ]
    return f"{'; '.join(parts)}: {evaluation_samples(config):,} samples in all" if parts else ""


def describe_evaluation(config: Config, traits: Traits) -> str:
    """The prompts that evaluations take, in words, and what gives others."""
    wanted, available = config["evaluation"]["prompts"], available_prompts(config)
    count = wanted if available is None else min(wanted, available)
    counts = counts_of(config["prompts"])
    if is_separate(config, traits):
        text = plural(count, "held-out prompt")
    elif counts is not None and counts.shared < counts.evaluated:
        shared = f"{counts.shared} of the {counts.evaluated} are trained on too"
        text = f"{plural(count, 'prompt')}; {shared}"
    else:
        text = f"{plural(count, 'training prompt')}{_remedy(config)}"
    if available is None and config["prompts"].get("path") is not None:
        text = f"at most {text}"
    if (noises := config["evaluation"]["noises"]) > 1:
        text = f"{text}, {noises} samples of each"
    if counts is not None and max(count, counts.shared) < counts.evaluated:
        whole = counts.evaluated
        return f"{text}, of {whole:,}: evaluation.prompts={whole} takes all"
    more = "" if count == wanted else f"; evaluation.prompts={wanted} is more than there are"
    return f"{text}{more}"


def row_notes(config: Config) -> list[str]:
    """Notes of a plan on the rows of its file: those that are left out."""
    counts = counts_of(config["prompts"])
    if counts is None or not counts.left_out:
        return []
    columns = " or ".join(config["prompts"]["skip_empty"])
    return [f"{counts.left_out} rows without {columns} are left out (prompts.skip_empty)"]


def _remedy(config: Config) -> str:
    node = config["prompts"]
    if is_reference(node["_target_"]):
        return "; eval_prompts=[...] has others"
    share, counts = node.get("held_out_share"), counts_of(node)
    if "eval_path" in node and share and counts is not None:
        few = f"{share:g} of {counts.trained} is fewer than {FEWEST}"
        return f" ({few}, so none is held out); prompts.eval_path=FILE has others"
    if "eval_path" in node:
        return "; prompts.held_out_share=0.1 holds some out, prompts.eval_path=FILE has others"
    validate = class_function(str(node["_target_"]), "validate", trusted_by(config))
    faults = validate({**node, "held_out_share": 0.1}, config) if validate else ()
    if share is None or "held_out_share" in (name for name, *_ in faults):
        return ""
    return "; prompts.held_out_share=0.1 holds some out"
