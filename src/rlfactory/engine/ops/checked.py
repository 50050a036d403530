"""Checks what an engine returned: training on other tokens than asked would go unnoticed."""

import math
from collections.abc import Sequence

from rlfactory.engine.base import Completion, EngineError, SamplingSettings


def checked(
    completions: Sequence[Completion], count: int, settings: SamplingSettings, vocabulary: int
) -> list[Completion]:
    """The completions, if they are what was asked for, each cut where a stop text is complete.

    Args:
        completions: what an engine returned.
        count: the number of prompts.
        settings: how they were to be drawn.
        vocabulary: the number of token ids of the model.

    Raises:
        EngineError: there are fewer or more; or one is empty, too long, has an id outside the
            vocabulary or of no token, goes on after a stop token or ends without one, or has other
            than one finite log-probability for each token.
    """
    if len(completions) != count:
        raise EngineError(
            f"the engine returned {len(completions)} responses to {count} prompts; nothing is"
            " learned from them. Resume the run, or set engine=own"
        )
    if (texts := settings.stop_texts) is not None:
        ends = [texts.first_end(completion.ids) for completion in completions]
        completions = [
            Completion(c.ids[:end], c.log_probs[:end])
            for c, end in zip(completions, ends, strict=True)
        ]
    for number, completion in enumerate(completions):
        fault = _fault(completion, settings, vocabulary)
        if fault:
            raise EngineError(
                f"the engine's response {number} {fault}; nothing is learned from it. The engine"
                " must serve the model that is trained, with its tokenizer"
            )
    return [*completions]


def _fault(completion: Completion, settings: SamplingSettings, vocabulary: int) -> str | None:
    ids, log_probs = completion.ids, completion.log_probs
    if not ids:
        return "is empty"
    if len(ids) > settings.length:
        return f"has {len(ids)} tokens, and dynamics.length={settings.length} were asked for"
    outside = [i for i in ids if not 0 <= i < vocabulary]
    if outside:
        return f"has token {outside[0]}, outside the model's {vocabulary} tokens"
    if unused := {*ids} & {*settings.unused}:
        return f"has id {min(unused)}, which no token has"
    if any(i in settings.stop for i in ids[:-1]):
        return "goes on after a stop token"
    if len(ids) < settings.length and not settings.ends(ids):
        return f"ends after {len(ids)} tokens without a stop token"
    if len(log_probs) != len(ids):
        return f"has {len(log_probs)} log-probabilities for {len(ids)} tokens"
    # a little above 0 by rounding
    if not all(math.isfinite(value) and value < 1e-3 for value in log_probs):
        return "has a log-probability that is no finite number below 0"
    return None
