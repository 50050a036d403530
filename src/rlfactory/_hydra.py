"""Everything that touches Hydra or OmegaConf: composing, listing, and Hydra's own command line."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

import hydra
from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override as Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlfactory.targets import PLUGINS

# 1.4 deprecates the argument that 1.3 wants
_VERSION = {"version_base": "1.3"} if hydra.__version__ < "1.4" else {}

CompositionError = (HydraException, OmegaConfBaseException)


@dataclass(frozen=True)
class Composed:
    """A configuration as plain values, and the option chosen in each group."""

    values: dict[str, Any]
    choices: dict[str, str]


def shipped_folder(name: str) -> Path:
    """`conf` or `sweeps`: inside the installed package, or at the top of a checkout."""
    inside = Path(__file__).parent / name
    return inside if inside.is_dir() else Path(__file__).parents[2] / name


class _InstalledPlugins(SearchPathPlugin):
    """Adds the `conf` package of each installed plug-in, in this process alone."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for entry in entry_points(group=PLUGINS):
            search_path.append(provider=entry.name, path=f"pkg://{entry.value}")


def _register_plugins() -> None:
    Plugins.instance().register(_InstalledPlugins)


def _initialised(work: Callable[[], Any]) -> Any:
    _register_plugins()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(shipped_folder("conf").resolve()), **_VERSION):
        return work()


def parse(overrides: Sequence[str]) -> list[Override]:
    """Parsed overrides; a HydraException names the one that can't be read."""
    parsed: list[Override] = OverridesParser.create().parse_overrides(list(overrides))
    return parsed


def compose_config(overrides: Sequence[str]) -> Composed:
    """Compose and resolve, with third parties' folders and packages on the search path."""

    def work() -> Composed:
        config = compose("config", overrides=list(overrides), return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        choices = {
            group: option
            for group, option in config.hydra.runtime.choices.items()
            if isinstance(group, str) and not group.startswith("hydra/") and option is not None
        }
        return Composed(_plain(config), choices)

    composed: Composed = _initialised(work)
    return composed


def _plain(config: DictConfig) -> dict[str, Any]:
    with_hydra = OmegaConf.to_container(config, resolve=False)
    assert isinstance(with_hydra, dict)
    own = OmegaConf.create({k: v for k, v in with_hydra.items() if k != "hydra"})
    values = OmegaConf.to_container(own, resolve=True, throw_on_missing=False)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def options(group: str, searched: Sequence[str] = ()) -> dict[str, Path | None]:
    """A group's options and their files, those of third parties included."""
    overrides = list(searched)

    def work() -> dict[str, Path | None]:
        loader = GlobalHydra.instance().config_loader()
        path = loader.get_search_path()
        folders = [_folder(entry.path) for entry in path.get_path()]
        folders += [_folder(p) for o in overrides for p in _searched(o)]
        found: dict[str, Path | None] = {}
        for folder in [f for f in folders if f is not None]:
            for file in sorted((folder / group).glob("*.yaml")):
                found.setdefault(file.stem, file)
        return found

    found: dict[str, Path | None] = _initialised(work)
    return found


def _searched(override: str) -> list[str]:
    key, _, value = override.partition("=")
    return value.strip("[]").split(",") if key == "hydra.searchpath" else []


def _folder(path: str | None) -> Path | None:
    """The folder behind a search path entry, where it is a real one."""
    if path is None or path.startswith("structured:"):
        return None
    if path.startswith("file://"):
        return Path(path.removeprefix("file://"))
    if path.startswith("pkg://"):
        package = path.removeprefix("pkg://")
        if package.startswith("hydra"):
            return None
        return Path(str(files(package)))
    return Path(path)


def defaults_list(overrides: Sequence[str]) -> list[tuple[str, str]]:
    """The files that are merged, in order, each with the package it lands in."""

    def work() -> list[tuple[str, str]]:
        loader = GlobalHydra.instance().config_loader()
        found = loader.compute_defaults_list("config", list(overrides), hydra.types.RunMode.RUN)
        return [
            (default.config_path, default.package or "")
            for default in found.defaults
            if default.config_path and not default.config_path.startswith("hydra/")
        ]

    merged: list[tuple[str, str]] = _initialised(work)
    return merged


def main(task: Callable[[Composed, list[str], Path], None], argv: Sequence[str]) -> None:
    """Hydra's own command line: multirun, `--cfg`, `--info`, completion. Calls `task` for each
    job.
    """
    _register_plugins()

    def job(config: DictConfig) -> None:
        inner = HydraConfig.get()
        choices = {
            str(group): str(option)
            for group, option in inner.runtime.choices.items()
            if not str(group).startswith("hydra/") and option is not None
        }
        changed = [o for o in inner.overrides.task]
        task(Composed(_plain(config), choices), changed, Path(inner.sweep.dir))

    sys.argv = ["rlfactory", *argv]
    folder = str(shipped_folder("conf").resolve())
    hydra.main(config_path=folder, config_name="config", **_VERSION)(job)()
