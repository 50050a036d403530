"""Names of metrics and scores as people read them, for figures, pages and tables."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from rlfactory.run.scores import Scores

EVALUATION = "evaluation prompts"
NAMES_AND_UNITS = {
    "loss": ("Loss", "nats"),
    "token_accuracy": ("Token accuracy", "share of tokens"),
    "preference_accuracy": ("Preference accuracy", "share of pairs"),
    "margin": ("Margin", "nats, times beta"),
    "preference/log_prob_chosen": ("Log-probability of the chosen", "nats"),
    "preference/log_prob_rejected": ("Log-probability of the rejected", "nats"),
    "kl/reference": ("KL to the reference", "KL divergence"),
    "kl/old": ("Distance from the sampling policy", "mean squared difference"),
    "kl/sequence": ("KL to the reference, a response", "nats"),
    "kl/coefficient": ("KL coefficient", "weight of the penalty"),
    "eval/kl": ("KL to the reference", "nats a token"),
    "eval/diversity": ("Diversity", "0 to 1"),  # a distance of images, a share of pairs of words
    "eval/text/repetition": ("Repetition", "share of repeated word trigrams"),
    "eval/text/reference_log_prob": ("Log-probability under the reference", "nats a token"),
    "diversity/pairwise": ("Diversity in training", "distance between samples"),
    "diversity/distinct_2": ("Diversity in training", "share of distinct word pairs"),
    "policy/entropy": ("Entropy", "nats a token"),
    "ratio/clip_fraction": ("Clipped share", "share of ratios"),
    "loss/value": ("Loss of the critic", "squared error"),
    "text/length": ("Length of a response", "tokens"),
    "grad/norm": ("Gradient norm", "norm before clipping"),
    "nfe/total": ("Forward passes", "forward passes"),
    "time/iteration": ("Time per iteration", "seconds"),
}
"""The title and the unit of a metric."""


def evaluation_label(evaluations: Collection[Scores]) -> str:
    """The name of the prompts of evaluations: held-out only if none of them is trained on."""
    is_separate = bool(evaluations) and all(scores.separate for scores in evaluations)
    return "held-out prompts" if is_separate else EVALUATION


def metric_name(metric: str) -> str:
    """A metric as a title: `KL to the reference`; one that has no name of its own unchanged."""
    if found := re.fullmatch(r"reward/(.+)/mean", metric):
        return f"{found[1]} in training"
    if found := re.fullmatch(r"eval/(.+)/mean", metric):
        return f"{found[1]} on {EVALUATION}"
    if metric in NAMES_AND_UNITS:
        return NAMES_AND_UNITS[metric][0]
    if found := re.fullmatch(r"eval/(.+)/(.+)", metric):
        return f"{found[1]}, {found[2]}"
    return metric


def metric_unit(metric: str) -> str:
    """The label of a metric's axis."""
    if metric in NAMES_AND_UNITS:
        return NAMES_AND_UNITS[metric][1]
    return "score" if re.fullmatch(r"(?:reward|eval)/.+/.+", metric) else metric


def run_choices(config: Mapping[str, Any]) -> str:
    """The choices of a run in a few words: `tiny_sd3, nft, shapes`; empty where nothing says so."""
    chosen = config.get("choices") or {}
    words = (chosen.get(key, "none") for key in ("model", "algo", "reward"))
    return ", ".join(word for word in words if word != "none")


def better_sentence(better: Mapping[str, str]) -> str:
    """A sentence, after a space, on which of named numbers more is better, and of which less.

    Empty where that is known of none.
    """
    named = {word: [n for n, b in better.items() if b == word] for word in ("higher", "lower")}
    parts = [f"{word} is better in {', '.join(names)}" for word, names in named.items() if names]
    words = "; ".join(parts)
    return f" {words[0].upper()}{words[1:]}." if words else ""
