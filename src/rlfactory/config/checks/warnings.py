"""Notes of a plan: combinations that are allowed and rarely intended; what was typed and has no
effect, or hardly the one that was meant; and what differs from the nearest published run.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rlfactory.config.checks.base import Config, Traits, penalties
from rlfactory.config.checks.chats import template_notes
from rlfactory.config.checks.prompt_files import known_rows
from rlfactory.config.checks.sampling import few_step_notes
from rlfactory.config.frozen import differences, format_value
from rlfactory.config.memory.model_parts import parts_of, published_pipeline, published_scheduler
from rlfactory.config.memory.peak_memory import traits_of
from rlfactory.config.nfe import weight_sets
from rlfactory.config.options import options
from rlfactory.config.problems import override_key
from rlfactory.config.schema.root import GROUPS
from rlfactory.model.pipelines.families import BY_TARGET
from rlfactory.model.pipelines.local_models import folder_of, left_out
from rlfactory.model.pipelines.scheduler_config import scheduler_of, solver_notes, timestep_notes
from rlfactory.utils.text import plural


def cautions(config: Config, traits: Traits) -> Iterator[str]:
    """Notes of a plan on combinations that are allowed and rarely intended."""
    node, dynamics = config["regularizer"], config["dynamics"]
    if node.get("placement") == "loss" and node.get("estimator") == "k3":
        yield "k3 in the loss follows the forward divergence; exact or k2 follow the one meant"
    truncated = dynamics.get("top_k", 0) > 0 or dynamics.get("top_p", 1) < 1
    if node.get("placement") == "reward" and truncated:
        yield "with top_k or top_p a sampled KL can turn negative and pay the policy for it"
    if truncated and traits["algo"].get("samples_from") != "data":
        yield "with top_k or top_p likelihoods are of all tokens, not only of those that are kept"
    for text in dynamics.get("stop") or []:
        if re.search(r"\\[nrt\\]", text):
            yield rf"dynamics.stop: in {text} \n is a line break, \t a tab, and \\ a backslash"
    yield from _other_timesteps(config, traits)
    yield from few_step_notes(config, traits)
    yield from _repeated_prompts(config, traits)
    yield from template_notes(config, traits)
    yield from _rare_prompts(config, traits)
    stop, evaluation = config["stop"], config["evaluation"]
    names = [key.rpartition(".")[2] for key, *_ in penalties(config, traits)]
    if stop["kl"] is not None and not {"regularizer", "reference"} & {*names}:
        yield "stop.kl goes by kl/reference, and no term of this sum is named reference"
    elif stop["kl"] is not None and traits["regularizer"].get("requires") == "nothing":
        yield (
            "stop.kl goes by kl/reference, which regularizer=none does not measure; a regularizer"
            " with a coefficient of 0 does"
        )
    if (stop["kl"], stop["reward"]) != (None, None) and not evaluation["every"]:
        yield "the best checkpoint is looked for at evaluations: evaluation.every=10 has some"


def _other_timesteps(config: Config, traits: Traits) -> Iterator[str]:
    """Notes where sampling departs from that of the pipeline's scheduler."""
    path, process = config.get("model", {}).get("path"), traits["model"].get("process")
    if not isinstance(path, str):
        return
    folder = folder_of(path)
    family = BY_TARGET.get(str(config["model"].get("_target_")))
    if folder is not None and family and (lost := {*left_out(folder)} & {*family.optional}):
        yield f"{path} has no {' and no '.join(sorted(lost))}: it is loaded without"
    scheduler = scheduler_of(folder) if folder is not None else published_scheduler(path)
    if process == "vp" and folder is not None:
        yield from timestep_notes(scheduler, config["schedule"])
    elif process == "flow":
        yield from solver_notes(scheduler)


def _repeated_prompts(config: Config, traits: Traits) -> Iterator[str]:
    """A note if a file has far fewer prompts than an iteration has groups."""
    is_read = "path" in traits["prompts"].get("prompt_files", ())  # of data sets one row is
    rows = known_rows(config, traits) if is_read else None
    if rows is None:
        return
    count = len({*map(str, rows.texts)})
    groups, size = config["prompts_per_iteration"], config["group_size"]
    if not 0 < 2 * count <= groups:
        return
    fitting = (n for n in range(count, 0, -1) if n * size % config["updates_per_iteration"] == 0)
    fix = f"; prompts_per_iteration={n} has none twice" if (n := next(fitting, 0)) else ""
    times = f"each comes up {groups // count} times{fix}"
    yield f"{plural(count, 'prompt')} for {groups} groups an iteration: {times}"


def _rare_prompts(config: Config, traits: Traits) -> Iterator[str]:
    """A note if prompts will hardly have as many rewards as statistics of their own need."""
    option = traits.get("advantage", {}).get("least_rewards")
    if option is None or not traits["prompts"].get("endless"):
        return
    if (size := config["group_size"]) < (least := config["advantage"][option]):
        few = f"the {size} rewards of a group are fewer than advantage.{option}={least}"
        yield f"{few}: until prompts recur, advantages are relative to the batch"


LARGE_RATE = 0.1
"""A learning rate far above all published ones: AdamW moves a weight by as much in a step."""
FULL_SIZE = 100e6
"""Parameters of a network from which on it is no small model."""
LEAST_MOVE = {"lora": 5e-4, "full": 2e-6}
"""What a weight may move by in a run that learns nothing: SmolLM2 with adapters was then at a
divergence of about 5e-4 nats a token from where it began."""
OF_STEPS = ("latent_storage", "tail", "tree.splits", "tree.noise_scale")
"""Keys of the root that only algorithms on sampling steps read."""
OF_IMAGES = (
    *(*OF_STEPS, "memory.compile", "memory.attention"),
    *(f"evaluation.{name}" for name in ("steps", "policy_fraction", "size", "grid")),
)


def unused_notes(
    config: Config, choices: Mapping[str, str], visible: Mapping[str, str], words: Sequence[str]
) -> Iterator[str]:
    """Notes on the overrides that were applied, `words`; of the `choices` those that are `visible`
    matter for this algorithm and model.
    """
    traits = traits_of(config)
    counts = Counter(override_key(word) for word in dict.fromkeys(words))
    last, keys = {override_key(word): word for word in words}, [*counts]
    for key, count in counts.items():
        if count > 1 and not any(word.startswith("~") for word in words):
            yield f"{key} is given {count} times, and the last one counts: {last[key]}"
    reader = f"algo={choices['algo']}"
    unread: tuple[str, ...] = OF_STEPS
    if traits["model"].get("process") == "tokens":
        reader, unread = f"model={choices['model']}", OF_IMAGES
    elif traits["algo"].get("requires") == "transitions":
        unread = ()
    hidden = {*GROUPS} & choices.keys() - visible.keys()
    for key in keys:
        if key.split(".")[0] in hidden or key in unread:
            yield f"{key} has no effect: {reader} does not read it"
        elif key.startswith("model.lora_") and config["model"].get("finetune") == "full":
            yield f"{key} has no effect without model.finetune=lora"
        elif key.startswith(("old.", "ema.")) and key[:3] not in weight_sets(config, traits):
            yield f"{key} has no effect: nothing here reads the weights {key[:3]}"
    yield from _unusual(config, traits)
    by_final_samples = traits["algo"].get("requires") == "forward_process"
    if "dynamics" in keys and by_final_samples and traits["dynamics"].get("has_log_prob"):
        yield "noise of these dynamics may explore and is not learned from: dynamics=ode has none"
    path, option = str(config["model"].get("path")), choices.get("model")
    family = BY_TARGET.get(str(config["model"]["_target_"]))
    if "model.path" in keys and family is not None and option == family.small:
        parts = parts_of(path) or {}
        if any(part.parameters > FULL_SIZE for part in parts.values()):
            yield (
                f"{path} is of full size, and model={option} has the settings of a small one:"
                f" model={family.option} model.path={path}"
            )


def _unusual_rate(config: Config, rate: float) -> Iterator[str]:
    """A note on a rate that breaks a policy, or at which a whole run hardly moves it."""
    if rate > LARGE_RATE:
        yield f"optimizer.lr={rate:g} is far above what is published, which is 1e-6 to 1e-3"
        return
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


def _unusual(config: Config, traits: Traits) -> Iterator[str]:
    if isinstance(rate := config["optimizer"].get("lr"), int | float):
        yield from _unusual_rate(config, rate)
    media, asked = (traits[name].get("media") for name in ("model", "prompts"))
    if "texts" in (media, asked) and None not in (media, asked) and asked != media:
        yield f"these prompts ask for {asked}, and the model makes {media}"
    is_published = published_pipeline(str(config["model"].get("path"))) is not None
    if is_published and traits["prompts"].get("for_small_models"):
        yield "these captions are for the small models that ship: prompts=preferences has others"


COMPARED = (
    *("schedule", "window", "times", "advantage", "dynamics", "regularizer", "precision"),
    *("model.finetune", "model.size", "model.guidance", "model.embedded_guidance"),
    *("model.lora_rank", "schedule.steps", "dynamics.noise_level", "algo.clip_range"),
    *("optimizer.lr", "prompts_per_iteration", "group_size", "updates_per_iteration"),
    *("iterations", "times.count"),
)
"""Groups and keys whose differences from a published run are worth a note."""
SHOWN = 6
"""Departures that a note lists."""


def nearest_published(choices: Mapping[str, str]) -> tuple[list[str], bool] | None:
    """The words to type for the published run nearest to a plan, and whether it is of this pair.

    The preset chosen, or what the recipe's file names: `# published: peer/NAME KEY=VALUE...`, or
    `# nearest: ...` where nobody has published the algorithm for the model.
    """
    chosen = choices.get("experiment", "")
    if chosen.startswith("peer/"):
        return [f"experiment={chosen}"], True
    path = options("recipe").get(choices.get("recipe", ""))
    text = "" if path is None else path.read_text(encoding="utf-8")
    found = re.search(r"^# (published|nearest): (.+)$", text, flags=re.M)
    if found is None:
        return None
    return f"experiment={found[2]}".split(), found[1] == "published"


def departures(
    config: Config, choices: Mapping[str, str], published: Config, their: Mapping[str, str]
) -> str:
    """The differences from a published run, theirs in brackets; empty if nothing of weight does."""
    theirs, ours = {**published, "choices": their}, {**config, "choices": choices}
    differing = {key: (new, old) for key, old, new in differences(theirs, ours)}
    unread = {key for key in COMPARED if key in GROUPS} - {*choices}
    keys = [k for k in COMPARED if k in differing and k.partition(".")[0] not in unread]
    found = ["{}={} ({})".format(key, *map(format_value, differing[key])) for key in keys]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"{', '.join(found[:SHOWN])}{more}"
