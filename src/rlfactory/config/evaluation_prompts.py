"""Whether evaluation prompts are separate from training prompts, as far as a plan can tell."""

import os
from pathlib import Path

from rlfactory.config.checks.base import Config, Traits
from rlfactory.utils.batch_sizes import DIVERSITY_PROMPTS, DIVERSITY_SAMPLES
from rlfactory.utils.held_out import FEWEST, held_out_count
from rlfactory.utils.live_objects import is_reference, resolve


def is_separate(config: Config, traits: Traits) -> bool:
    """Whether no evaluation prompt is trained on; of a data set, as its options say."""
    node = config["prompts"]
    if is_reference(node["_target_"]):
        return bool(getattr(resolve(node["_target_"]), "separate", False))
    own = traits["prompts"].get("separate", False)
    if own is not None:
        return bool(own)
    if node.get("eval_path") or node.get("eval_split"):
        return True
    share, count = node.get("held_out_share") or 0.0, prompt_count(config)
    is_list = count is not None and "eval_path" in node
    return bool(held_out_count(count or 0, share) if is_list else share)


def prompt_count(config: Config) -> int | None:
    """How many different prompts a file of text lines has; None for other sources."""
    path = config["prompts"].get("path")
    if not isinstance(path, str) or not path.endswith((".txt", ".jsonl")):
        return None
    return _lines(Path(path).expanduser())


def evaluation_samples(config: Config) -> int:
    """How many samples an evaluation scores, those of further prompt sets among them."""
    own = config["evaluation"]["prompts"]
    noises = config["evaluation"].get("noises", 1)  # older runs have one
    return int(noises * (own + sum(set_counts(config).values())))


def evaluation_draws(config: Config) -> int:
    """How many samples an evaluation draws: those that are scored, and those for the diversity."""
    own, noises = _available(config), config["evaluation"].get("noises", 1)
    wanted = config["evaluation"]["prompts"]
    counts = [wanted if own is None else min(wanted, own), *set_counts(config).values()]
    scored = [int(noises * count) for count in counts]
    return sum(count + DIVERSITY_SAMPLES * min(DIVERSITY_PROMPTS, count) for count in scored)


def set_counts(config: Config) -> dict[str, int]:
    """How many prompts of each further prompt set an evaluation takes, at most."""
    sets = config.get("eval_sets") or {}  # older runs have none
    default = config["evaluation"]["prompts"]
    counts = {}
    for name in sets.get("of", ()):
        wanted = sets["counts"].get(name, default)
        available = _available({"prompts": sets["parts"][name]})
        counts[name] = wanted if available is None else min(wanted, available)
    return counts


def set_rewards(config: Config, name: str) -> list[str] | None:
    """The names of the rewards of a prompt set; None: those of the run's own evaluations."""
    named: list[str] | None = config["eval_sets"]["rewards"].get(name)
    return named


def describe_sets(config: Config) -> str:
    """The further prompt sets of an evaluation, in words; empty without any."""
    counts = set_counts(config)
    parts = [
        f"{count} of {name}" + (f" by {', '.join(named)}" if named else "")
        for name, count in counts.items()
        for named in [set_rewards(config, name)]
    ]
    return f"{'; '.join(parts)}: {evaluation_samples(config):,} samples in all" if parts else ""


def describe_evaluation(config: Config, traits: Traits) -> str:
    """The prompts that evaluations take, in words, and what gives others."""
    wanted, available = config["evaluation"]["prompts"], _available(config)
    count = wanted if available is None else min(wanted, available)
    if is_separate(config, traits):
        text = f"{count} held-out prompts"
    else:
        text = f"{count} training prompts{_remedy(config)}"
    if (noises := config["evaluation"]["noises"]) > 1:
        text = f"{text}, {noises} samples of each"
    return (
        text if count == wanted else f"{text}; evaluation.prompts={wanted} is more than there are"
    )


def _available(config: Config) -> int | None:
    """How many prompts there are to evaluate on; None where only the source knows."""
    node = config["prompts"]
    if is_reference(node["_target_"]):
        listed = getattr(resolve(node["_target_"]), "eval_prompts", None)
        return None if listed is None else len(listed)
    if "eval_path" not in node:
        return None
    if node["eval_path"] is not None:
        return _lines(Path(node["eval_path"]).expanduser())
    count = prompt_count(config)
    return count and (held_out_count(count, node.get("held_out_share") or 0.0) or count)


def _remedy(config: Config) -> str:
    node = config["prompts"]
    if is_reference(node["_target_"]):
        return "; eval_prompts=[...] has others"
    share, count = node.get("held_out_share"), prompt_count(config)
    if "eval_path" in node and share and count is not None:
        too_few = f" ({share:g} of {count} is fewer than {FEWEST}, so none is held out)"
        return f"{too_few}; prompts.eval_path=FILE has others"
    if "eval_path" in node:
        return "; prompts.held_out_share=0.1 holds some out, prompts.eval_path=FILE has others"
    return "; prompts.held_out_share=0.1 holds some out" if share is not None else ""


def _lines(path: Path) -> int | None:
    """The number of different lines of a file, blank ones aside."""
    if not os.path.isfile(path):
        return None
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return len({line.strip() for line in lines if line.strip()})
