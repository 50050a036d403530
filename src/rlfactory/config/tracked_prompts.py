"""How many groups DDPO's tracker compares with their own prompt's rewards, counted in advance."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rlfactory.config.checks.base import Config
from rlfactory.config.schema.signature import trait
from rlfactory.config.schema.targets import instantiate
from rlfactory.utils.errors import UserError

OURS, DOWNLOADED = "rlfactory.prompts.", "rlfactory.prompts.hub."
"""Sources whose draws can be counted: downloads and code of one's own are not run for a plan."""
MOST = 2000
"""Groups of an endless source that are counted, which takes 0.1 s."""
FEWEST = 4
"""The smallest group whose own rewards make a mean and a standard deviation of some use."""


def tracker_notes(config: Config) -> Iterator[str]:
    """A note if most groups will have too few rewards of their own prompt."""
    advantage, size = config["advantage"], config["group_size"]
    if not trait(advantage, "tracks_prompts", False) or size >= (least := advantage["min_count"]):
        return
    target = config["prompts"]["_target_"]
    if not target.startswith(OURS) or target.startswith(DOWNLOADED):
        return
    try:
        own, groups = own_statistics(instantiate(config["prompts"], "prompts"), config, least)
    except UserError:  # told by the rules on prompts
        return
    if 2 * own >= groups:
        return
    remedy = (
        f"advantage.min_count={size} lets each group use its own"
        if size >= FEWEST
        else "advantage=batch is that from the start, and prompts of a shorter list recur"
    )
    total = config["iterations"] * config["prompts_per_iteration"]
    counted = f"{groups}" if groups == total else f"the first {groups}"
    yield (
        f"{own} of {counted} groups will have advantage.min_count={least} rewards of their own"
        f" prompt, and the others use the mean and deviation of the batch: {remedy}"
    )


def own_statistics(prompts: Any, config: Config, least: int) -> tuple[int, int]:
    """Groups whose prompt has `least` rewards by then, and all groups; of the first `MOST` where
    the source is endless.
    """
    count, endless = config["prompts_per_iteration"], not prompts.texts()
    rewards: Counter[str] = Counter()
    own = groups = 0
    for iteration in range(config["iterations"]):
        texts = [p.text for p in prompts.draw(count, seed=config["seed"], iteration=iteration)]
        for text in texts:
            rewards[text] += config["group_size"]
        own += sum(rewards[text] >= least for text in texts)
        groups += count
        if endless and groups >= MOST:
            break
    return own, groups
