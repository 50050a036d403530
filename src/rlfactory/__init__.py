"""Reinforcement learning for image generators and language models, one loop for both.

The names of `rlfactory.api` are here too; it is imported when one of them is first used.
"""

import sys

# `python -m rlfactory` puts the current folder first on the import path: a file there that is named
# like one of the modules below, or of those that they import, would run
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    del sys.path[0]

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rlfactory.utils.version import __version__

__all__ = ["PlanError", "Run", "__version__", "load_run", "plan", "train"]

if TYPE_CHECKING:
    from rlfactory.api import PlanError, Run, load_run, plan, train
else:
    from rlfactory import train

    class _TrainPackage(ModuleType):
        """The package `rlfactory.train`, which is `rlfactory.api.train` when it is called.

        Importing any of its modules binds the package to the name `rlfactory.train`, so the
        function can't have it.
        """

        def __call__(self, *words: str, **given: Any) -> Any:
            return import_module("rlfactory.api").train(*words, **given)

        @property
        def __doc__(self) -> str:
            """The text that `help` prints."""
            from inspect import signature

            function = import_module("rlfactory.api").train
            return f"train{signature(function)}\n\n{function.__doc__}"

    train.__class__ = _TrainPackage


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("rlfactory.api"), name)
    raise AttributeError(f"module 'rlfactory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
