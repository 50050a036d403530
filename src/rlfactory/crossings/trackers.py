"""Whether loggers are installed, and what several of them are."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from rlfactory.crossings.base import Config, Traits
from rlfactory.problems import Problem


def parts_are_loggers(config: Config, traits: Traits) -> Iterator[Problem]:
    """Of several there is one at least, none is several itself and none is listed twice."""
    if traits["logger"].get("made_of") != "parts":
        return
    names = config["logger"]["of"]
    if not names:
        remedy = "logger.of=[wandb,tensorboard]"
        yield Problem("logger.of", "is empty; name the loggers that there are to be", remedy)
    for name in {name for name in names if names.count(name) > 1}:
        message = f"names {name} twice; to have it twice, name a part of your own"
        yield Problem("logger.of", message, f"logger.of=[{','.join(dict.fromkeys(names))}]")
    for name in names:
        key = f"logger.parts.{name}"
        if traits.get(key, {}).get("made_of") == "parts":
            yield Problem(key, "is several itself; a part is a single logger")


def loggers_are_there(config: Config, traits: Traits) -> Iterator[Problem]:
    """What a logger imports is installed."""
    keys = [f"logger.parts.{name}" for name in config["logger"].get("of", [])]
    for key in ("logger", *keys):
        package, extra = (traits.get(key, {}).get(name) for name in ("package", "extra"))
        if package is not None and not _is_installed(package):
            brings = f"'rlfactory[{extra}]'" if extra else package
            message = f"needs the package {package}, which is not installed"
            yield Problem(key, f"{message}; type pip install {brings}, or leave it out")


def _is_installed(package: Any) -> bool:
    spec = find_spec(package)
    return spec is not None and spec.origin is not None  # a mere folder of that name has none
