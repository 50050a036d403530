"""What a regularizer compares, and whether there is such a thing."""

from collections.abc import Iterator

from rlfactory.crossings.base import Config, Traits, penalties
from rlfactory.problems import Problem

_MEASURED = ("approx", "coefficient", "sequence")


def regularizer_fits_algorithm(config: Config, traits: Traits) -> Iterator[Problem]:
    """Divergences of steps need an algorithm that takes steps, those of tokens one on tokens."""
    algo = traits["algo"].get("needs")
    for key, _, ours in penalties(config, traits):
        needs = ours.get("needs")
        if needs != "nothing" and (needs == "tokens") != (algo == "tokens"):
            remedy = "regularizer=kl_token" if algo == "tokens" else "regularizer=kl_v"
            message = "this divergence is of another kind of model"
            yield Problem(key, message, remedy if key == "regularizer" else "")
        elif needs == "transitions" and algo != "transitions":
            message = "this divergence compares sampling steps, and this algorithm keeps none"
            yield Problem(key, message, "regularizer=kl_v" if key == "regularizer" else "")


def divergence_fits_process(config: Config, traits: Traits) -> Iterator[Problem]:
    """A divergence scaled by the noise of flow steps is one of flow models."""
    theirs = traits["model"].get("process")
    for key, _, ours in penalties(config, traits):
        process = ours.get("process")
        if process and theirs and theirs != "tokens" and process != theirs:
            message = f"this divergence is for a {process} process, the model's is {theirs}"
            yield Problem(key, message, "regularizer=kl_v" if key == "regularizer" else "")


def behaviour_has_surrogate(config: Config, traits: Traits) -> Iterator[Problem]:
    """Only an algorithm that has a surrogate of the likelihood can compare two of them."""
    for key, node, _ in penalties(config, traits):
        if node.get("compare") == "surrogate" and not traits["algo"].get("surrogate"):
            message = "is surrogate, and this algorithm has none; allowed is prediction"
            yield Problem(f"{key}.compare", message, f"{key}.compare=prediction")


def terms_add_up(config: Config, traits: Traits) -> Iterator[Problem]:
    """A sum has terms, each a penalty on images, under a name of its own."""
    if traits["regularizer"].get("needs") != "terms":
        return
    if not config["regularizer"].get("terms"):
        message = "is empty, so nothing would be added; regularizer=none says that"
        yield Problem("regularizer.terms", message)
    for key, _, ours in penalties(config, traits):
        name = key.rpartition(".")[2]
        if ours.get("needs") in ("nothing", "terms", "tokens"):
            yield Problem(key, "is no divergence of images; a sum's terms are kl_v, kl_x and such")
        elif name in _MEASURED:
            yield Problem(key, f"kl/{name} is another metric already; the term needs another name")


def divergence_teaches(config: Config, traits: Traits) -> Iterator[Problem]:
    """Differentiated as it stands, k1 has no gradient in expectation."""
    node = config["regularizer"]
    if node.get("placement") == "loss" and node.get("estimator") == "k1":
        message = "is k1, whose gradient in a loss is zero in expectation; allowed are exact and k2"
        yield Problem("regularizer.estimator", message, "regularizer.estimator=exact")
