"""Rules on rollout engines: what they can draw, where, and whether they are installed."""

from collections.abc import Iterator
from importlib.util import find_spec

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.problems import Problem

OWN = "engine=own"


def require_installed_engine(config: Config, traits: Traits) -> Iterator[Problem]:
    """The package that an engine imports is installed."""
    package = traits["engine"].get("package")
    if package is not None and find_spec(package) is None:
        message = (
            f"needs the package {package}, which is not installed; type pip install {package},"
            " or serve the model elsewhere and take engine=vllm_server"
        )
        yield Problem("engine", message, OWN)


def require_engine_of_texts(config: Config, traits: Traits) -> Iterator[Problem]:
    """An engine draws the texts of a single process."""
    if traits["engine"].get("draws_by") != "engine":
        return
    if traits["model"].get("process") != "tokens":
        yield Problem("engine", "draws texts, and the model draws none", OWN)
    if config["hardware"].get("processes", 1) != 1 or "strategy" in config["hardware"]:
        message = "is driven by one process; with several the model's own loop draws"
        yield Problem("engine", message, OWN)
