"""Rules on regularizers: divergences that fit the algorithm and the model."""

from collections.abc import Iterator

from rlfactory.config.checks.base import Config, Traits, penalties
from rlfactory.config.problems import Problem

_RESERVED_NAMES = ("approx", "coefficient", "sequence")


def require_matching_divergence(config: Config, traits: Traits) -> Iterator[Problem]:
    """Divergences of steps need an algorithm on sampling steps, those of tokens one on tokens."""
    algo = traits["algo"].get("requires")
    for key, _, term_traits in penalties(config, traits):
        needs = term_traits.get("requires")
        if needs != "nothing" and (needs == "tokens") != (algo == "tokens"):
            remedy = "regularizer=kl_token" if algo == "tokens" else "regularizer=kl_v"
            message = "this divergence is of another kind of model"
            yield Problem(key, message, remedy if key == "regularizer" else "")
        elif needs == "transitions" and algo != "transitions":
            message = "this divergence compares sampling steps, and this algorithm keeps none"
            yield Problem(key, message, "regularizer=kl_v" if key == "regularizer" else "")


def require_matching_process(config: Config, traits: Traits) -> Iterator[Problem]:
    """A divergence that is derived for one noise process needs a model of that process."""
    model_process = traits["model"].get("process")
    for key, _, term_traits in penalties(config, traits):
        process = term_traits.get("process")
        if process and model_process not in (None, "tokens", process):
            message = f"this divergence is for a {process} process, the model's is {model_process}"
            yield Problem(key, message, "regularizer=kl_v" if key == "regularizer" else "")


def require_surrogate(config: Config, traits: Traits) -> Iterator[Problem]:
    """`compare=surrogate` needs an algorithm with a surrogate of the likelihood."""
    for key, node, _ in penalties(config, traits):
        if node.get("compare") == "surrogate" and not traits["algo"].get(
            "has_surrogate_likelihood"
        ):
            message = "is surrogate, and this algorithm has none; allowed is prediction"
            yield Problem(f"{key}.compare", message, f"{key}.compare=prediction")


def require_valid_terms(config: Config, traits: Traits) -> Iterator[Problem]:
    """A sum has terms; each is a divergence of images, under a name that is no other metric."""
    if traits["regularizer"].get("requires") != "terms":
        return
    if not config["regularizer"].get("terms"):
        message = "is empty, so nothing would be added; regularizer=none says that"
        yield Problem("regularizer.terms", message)
    for key, _, term_traits in penalties(config, traits):
        name = key.rpartition(".")[2]
        if term_traits.get("requires") in ("nothing", "terms", "tokens"):
            yield Problem(key, "is no divergence of images; a sum's terms are kl_v, kl_x and such")
        elif name in _RESERVED_NAMES:
            yield Problem(key, f"kl/{name} is another metric already; the term needs another name")
