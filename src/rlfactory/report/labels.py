"""Names of metrics and scores as people read them, for figures, pages and tables."""

import re
from collections.abc import Mapping
from typing import Any

EVALUATION = "evaluation prompts"
NAMES = {
    "loss": "Loss",
    "token_accuracy": "Token accuracy",
    "preference_accuracy": "Preference accuracy",
    "margin": "Margin",
    "preference/log_prob_chosen": "Log-probability of the chosen",
    "preference/log_prob_rejected": "Log-probability of the rejected",
    "kl/reference": "KL to the reference",
    "kl/old": "Distance from the sampling policy",
    "kl/sequence": "KL to the reference, a response",
    "kl/coefficient": "KL coefficient",
    "eval/kl": "KL to the reference",
    "eval/diversity": "Diversity",
    "eval/text/repetition": "Repetition",
    "eval/text/reference_log_prob": "Log-probability under the reference",
    "diversity/pairwise": "Diversity in training",
    "diversity/distinct_2": "Diversity in training",
    "policy/entropy": "Entropy",
    "ratio/clip_fraction": "Clipped share",
    "loss/value": "Loss of the critic",
    "text/length": "Length of a response",
    "grad/norm": "Gradient norm",
    "nfe/total": "Forward passes",
}
UNITS = {
    "loss": "nats",
    "token_accuracy": "share of tokens",
    "preference_accuracy": "share of pairs",
    "margin": "nats, times beta",
    "preference/log_prob_chosen": "nats",
    "preference/log_prob_rejected": "nats",
    "kl/reference": "KL divergence",
    "kl/old": "mean squared difference",
    "kl/sequence": "nats",
    "kl/coefficient": "weight of the penalty",
    "eval/kl": "nats a token",
    "eval/diversity": "0 to 1",  # of images a distance, of texts a share of word pairs
    "eval/text/repetition": "share of repeated word trigrams",
    "eval/text/reference_log_prob": "nats a token",
    "diversity/pairwise": "distance between samples",
    "diversity/distinct_2": "share of distinct word pairs",
    "policy/entropy": "nats a token",
    "ratio/clip_fraction": "share of ratios",
    "loss/value": "squared error",
    "text/length": "tokens",
    "grad/norm": "norm before clipping",
    "nfe/total": "forward passes",
}


def evaluation_label(separate: bool = False) -> str:
    """What evaluation prompts are called: held-out only if none of them is trained on."""
    return "held-out prompts" if separate else EVALUATION


def metric_name(metric: str) -> str:
    """A metric as a title: `KL to the reference`; one that has no name of its own unchanged."""
    if found := re.fullmatch(r"reward/(.+)/mean", metric):
        return f"{found[1]} in training"
    if found := re.fullmatch(r"eval/(.+)/mean", metric):
        return f"{found[1]} on {EVALUATION}"
    if metric in NAMES:
        return NAMES[metric]
    if found := re.fullmatch(r"eval/(.+)/(.+)", metric):
        return f"{found[1]}, {found[2]}"
    return metric


def metric_unit(metric: str) -> str:
    """The label of a metric's axis."""
    is_score = re.fullmatch(r"(?:reward|eval)/.+/.+", metric)
    return UNITS.get(metric, "score" if is_score else metric)


def run_choices(config: Mapping[str, Any]) -> str:
    """What a run trains, in a few words: `tiny_sd3, nft, shapes`; empty where nothing says so."""
    chosen = config.get("choices")
    chosen = chosen if isinstance(chosen, Mapping) else {}
    words = [str(chosen[key]) for key in ("model", "algo", "reward") if key in chosen]
    return ", ".join(word for word in words if word != "none")
