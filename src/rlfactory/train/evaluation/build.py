"""Builds what evaluates the weights of an experiment: prompt sets, their rewards, the evaluator."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rlfactory.config.prompt_data import set_counts
from rlfactory.config.schema.targets import instantiate, locate
from rlfactory.model.pipelines.local_models import height_and_width
from rlfactory.prompts.base import Prompt, PromptError, Prompts
from rlfactory.prompts.ops.held_out import sameness
from rlfactory.prompts.ops.pictured import PicturedText, mismatch, size_problem
from rlfactory.prompts.ops.prompt_list import joined
from rlfactory.reward.base import Reward
from rlfactory.train.components import Components, ProgressListener
from rlfactory.train.evaluation.evaluator import Evaluator, GivenEvaluation
from rlfactory.utils.dotted_keys import Config

log = logging.getLogger(__name__)

GIVE_PICTURES = (
    "type prompts=edits, give each line of a .jsonl file an `image` (prompts=file), or, for"
    " rlfactory sample, --image FILE beside each --prompt"
)
LEAVE_PICTURES = (
    "this model takes none: type model=flux_kontext, or prompts.image_column=null to leave"
    " pictures out; of language models model=qwen25_vl reads them"
)


def build_prompt_sets(config: Config) -> dict[str, list[Prompt]]:
    """The prompts of each further prompt set of evaluations, by its name."""
    parts, counts = config["eval_sets"]["parts"], set_counts(config)
    built = {name: instantiate(parts[name], f"eval_sets.parts.{name}") for name in counts}
    return {name: source.held_out(counts[name]) for name, source in built.items()}


def judges_of(
    config: Config, name: str, reward: Reward | None, others: Mapping[str, Reward]
) -> tuple[Reward | None, dict[str, Reward]]:
    """The judges of a prompt set, or the run's own prompts, `""`: the training reward, unless the
    set names its rewards, and other rewards by name.
    """
    named = config["eval_sets"]["rewards"].get(name)
    of = config["eval_rewards"]["of"] if named is None else named
    return reward if named is None else None, {other: others[other] for other in of}


def check_prompts(
    config: Config,
    prompts: Prompts,
    sets: Mapping[str, list[Prompt]],
    reward: Reward,
    others: Mapping[str, Reward],
) -> None:
    """Have each reward check the prompts that it will score, and check their pictures.

    Raises:
        PromptError: pictures do not fit the model.
        RewardError: a reward does not fit the prompts.
    """
    held_out = prompts.held_out(config["evaluation"]["prompts"])
    check_pictures(config["model"], [*prompts.texts(), *(p.text for p in held_out)])
    check_pictures(config["model"], [p.text for listed in sets.values() for p in listed])
    reward.check_prompts(joined(prompts.known(), held_out))
    for name, listed in {"": held_out, **sets}.items():
        judge, more = judges_of(config, name, reward if name else None, others)
        for each in filter(None, [judge, *more.values()]):
            each.check_prompts(listed)


def check_pictures(model: Config, texts: Sequence[str]) -> None:
    """Raise PromptError unless each text has a picture of the model's shape exactly if the model
    edits pictures. A language model that reads pictures takes any, and texts alone.
    """
    kind = locate(model["_target_"], "model")
    if getattr(kind, "reads_pictures", False):
        return
    edits = getattr(kind, "pictures", False)
    if problem := mismatch(texts, edits):
        raise PromptError(f"{problem}; {GIVE_PICTURES if edits else LEAVE_PICTURES}")
    size = height_and_width(model["size"]) if edits else (0, 0)
    for text in texts:
        if isinstance(text, PicturedText) and (problem := size_problem(text.source, size)):
            raise PromptError(f"{problem}; crop it, or type model.size=[HEIGHT,WIDTH]")


def build_evaluator(
    config: Config, components: Components, progress: ProgressListener
) -> Evaluator:
    """The evaluator of a run's weights on its evaluation prompts."""
    evaluation = config["evaluation"]
    wanted, noises = evaluation["prompts"], evaluation["noises"]
    prompts = components.prompts.held_out(wanted)
    if len(prompts) < wanted:
        message = "evaluation.prompts=%d is more than there are: an evaluation takes %d"
        log.warning(message, wanted, len(prompts))
    reward = components.reward if components.reward.gives_scores else None
    trained = {*map(sameness, components.prompts.texts() if components.prompt_sets else ())}
    evaluators = {}
    for name, listed in {"": prompts, **components.prompt_sets}.items():
        judge, others = judges_of(config, name, reward, components.eval_rewards)
        separate = trained.isdisjoint(sameness(prompt.text) for prompt in listed)
        evaluators[name] = Evaluator(
            model=components.model,
            sampler=components.sampler,
            reward=judge,
            # without a score of samples, having nothing to evaluate is an error of its own
            given=_given(config, components, listed, warns=bool(name) or reward is not None),
            others=others,
            scorer=components.scorer,
            max_failed=config["max_failed"],
            prompts=listed * noises,
            noises=noises,
            separate=separate if name else bool(components.prompts.separate),
            seed=config["seed"] if evaluation.get("seed") is None else evaluation["seed"],
            progress=progress,
            hardware=components.hardware,
        )
    return replace(evaluators.pop(""), sets=evaluators)


def _given(
    config: Config, components: Components, prompts: Sequence[Prompt], *, warns: bool
) -> GivenEvaluation | None:
    """A function for the loss of these rows; None where one of them has nothing to learn."""
    if not components.algo.data_scores:
        return None
    try:
        for prompt in prompts:
            components.algo.completion(prompt, 0)
    except PromptError as error:
        if warns:
            log.warning("no held-out loss: %s", error)
        return None
    return GivenEvaluation(components, config["seed"], config["micro_batch"])
