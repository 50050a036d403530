"""Notes of a plan on what was typed and has no effect, or hardly the one that was meant."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.memory.model_parts import published_pipeline
from rlfactory.config.memory.suggestions import traits_of
from rlfactory.config.nfe import update_items, weight_sets
from rlfactory.config.problems import override_key
from rlfactory.config.schema.root import GROUPS

LARGE_RATE = 0.1
"""A learning rate far above all published ones: AdamW moves a weight by as much in a step."""
LEAST_MOVE = {"lora": 5e-4, "full": 2e-6}
"""What a weight may move by in a run that learns nothing: SmolLM2 with adapters was then at a
divergence of about 5e-4 nats a token from where it began."""
OF_STEPS = ("latent_storage", "tail", "tree.splits", "tree.noise_scale")
"""Keys of the root that only algorithms on sampling steps read."""
OF_EVALUATION = ("steps", "policy_fraction", "size", "grid")
OF_IMAGES = (*OF_STEPS, *(f"evaluation.{name}" for name in OF_EVALUATION))


def unused_notes(
    config: Config, choices: Mapping[str, str], visible: Mapping[str, str], words: Sequence[str]
) -> Iterator[str]:
    """Notes on the words of a command.

    Args:
        config: all values.
        choices: the option chosen of each group.
        visible: those that matter for this algorithm and model.
        words: the overrides that were applied.
    """
    traits = traits_of(config)
    keys = list(dict.fromkeys(override_key(word) for word in words))
    yield from _repeated(words)
    reader = f"algo={choices['algo']}"
    if traits["model"].get("process") == "tokens":
        reader = f"model={choices['model']}"
    hidden = {*GROUPS} & choices.keys() - visible.keys()
    for key in keys:
        if key.split(".")[0] in hidden or key in _unread(traits):
            yield f"{key} has no effect: {reader} does not read it"
        elif key.startswith("model.lora_") and config["model"].get("finetune") == "full":
            yield f"{key} has no effect without model.finetune=lora"
        elif key.startswith(("old.", "ema.")) and key[:3] not in weight_sets(config, traits):
            yield f"{key} has no effect: nothing here reads the weights {key[:3]}"
    yield from _unusual(config, traits, keys)


def _too_small(config: Config, rate: float) -> Iterator[str]:
    """A note on a rate at which a whole run hardly moves the policy."""
    updates = config["iterations"] * config["epochs"] * config["updates_per_iteration"]
    finetune = str(config["model"].get("finetune", "full"))
    default = config["learning_rate"].get(finetune)
    # the first steps of Adam and Muon are as long as the rate, whatever the gradient
    is_adaptive = any(name in str(config["optimizer"]["_target_"]) for name in ("Adam", "Muon"))
    if default is None or not is_adaptive or rate >= default / 2:
        return
    if rate * updates < LEAST_MOVE[finetune]:
        yield (
            f"optimizer.lr={rate:g} moves each weight by {rate * updates:g} at most in the"
            f" {updates} updates of this run, too little to learn:"
            f" optimizer.lr={default:g} is the default of model.finetune={finetune}"
        )


def _repeated(words: Sequence[str]) -> Iterator[str]:
    """Keys that were given several values."""
    last = {override_key(word): word for word in words}
    counts = Counter(override_key(word) for word in dict.fromkeys(words))
    for key, count in counts.items():
        if count > 1 and not any(word.startswith("~") for word in words):
            yield f"{key} is given {count} times, and the last one counts: {last[key]}"


def _unread(traits: Traits) -> tuple[str, ...]:
    """Keys of the root that the algorithm and the model do not read."""
    if traits["model"].get("process") == "tokens":
        return OF_IMAGES
    return OF_STEPS if traits["algo"].get("requires") != "transitions" else ()


def _unusual(config: Config, traits: Traits, keys: Sequence[str]) -> Iterator[str]:
    rate = config["optimizer"].get("lr")
    if isinstance(rate, int | float) and rate > LARGE_RATE:
        yield f"optimizer.lr={rate:g} is far above what is published, which is 1e-6 to 1e-3"
    elif isinstance(rate, int | float):
        yield from _too_small(config, rate)
    if config["model"].get("guidance") == 0:
        yield "model.guidance=0 is no guidance, as 1 is"
    items, size = update_items(config, traits)
    if "micro_batch" in keys and size > items:
        yield f"micro_batch={size} has no more effect than {items}, all items of an update"
    media, asked = (traits[name].get("media") for name in ("model", "prompts"))
    if "texts" in (media, asked) and None not in (media, asked) and asked != media:
        yield f"these prompts ask for {asked}, and the model makes {media}"
    is_published = published_pipeline(str(config["model"].get("path"))) is not None
    if is_published and traits["prompts"].get("for_small_models"):
        yield "these captions are for the small models that ship: prompts=preferences has others"
