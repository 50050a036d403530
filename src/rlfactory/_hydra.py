"""Everything that touches Hydra or OmegaConf: composing, listing, and Hydra's own command line."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
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

from rlfactory.problems import Problem
from rlfactory.shipped import shipped_folder
from rlfactory.targets import plugins

# 1.4 deprecates the argument that 1.3 wants
_VERSION = {"version_base": "1.3"} if hydra.__version__ < "1.4" else {}

CompositionError = (
    *(HydraException, OmegaConfBaseException, yaml.YAMLError, UnicodeDecodeError),
    *(OSError, RecursionError),  # of a file that can't be read or holds no mapping; brackets
)


@dataclass(frozen=True)
class Composed:
    """A configuration as plain values, the options chosen, and what was left out and kept."""

    values: dict[str, Any]
    choices: dict[str, str]
    problems: list[Problem] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)


class _InstalledPlugins(SearchPathPlugin):
    """Adds the `conf` package of each installed plug-in, in this process alone."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for name, package in plugins().items():
            search_path.append(provider=name, path=f"pkg://{package}")


def _register_plugins() -> None:
    Plugins.instance().register(_InstalledPlugins)


def _initialised(work: Callable[[], Any]) -> Any:
    _register_plugins()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(shipped_folder("conf").resolve()), **_VERSION), _fast_yaml():
        return work()


@contextmanager
def _fast_yaml() -> Iterator[None]:
    """YAML parsed in C, for as long as OmegaConf derives its loader from this class.

    A third of the time of composing is spent on parsing otherwise.
    """
    pure = yaml.SafeLoader
    yaml.SafeLoader = getattr(yaml, "CSafeLoader", pure)  # type: ignore[misc]
    try:
        yield
    finally:
        yaml.SafeLoader = pure  # type: ignore[misc]


def parse(overrides: Sequence[str]) -> list[Override]:
    """Parsed overrides; a HydraException names the one that can't be read."""
    parsed: list[Override] = OverridesParser.create().parse_overrides(list(overrides))
    return parsed


class Composition:
    """The chosen options merged, and then the values that were typed.

    In two steps, so that what the first holds tells which keys there are: composing takes most of
    the time of a command that is refused.
    """

    def __init__(self, chosen: Sequence[str]) -> None:
        """Compose, with third parties' folders and packages on the search path."""
        self._chosen = parse(chosen)
        self._config = _composed(chosen)

    @property
    def values(self) -> dict[str, Any]:
        """The values as they are written, `${...}` included."""
        return _unresolved(self._config)

    def changed(self, overrides: Sequence[Override] = ()) -> Composed:
        """The configuration with values changed, resolved."""
        ConfigLoaderImpl._apply_overrides_to_config(list(overrides), self._config)
        _record(self._config.hydra, self._chosen, overrides)
        HydraConfig.instance().set_config(self._config)
        return Composed(_plain(self._config), _choices(self._config.hydra.runtime.choices))


_composed_so_far = count()


def _composed(chosen: Sequence[str]) -> DictConfig:
    """A configuration of one's own; what is merged of our files alone is kept for the next time.

    Most commands compose once, and are spared the copy.
    """
    if next(_composed_so_far) == 0 or plugins() or any("hydra" in word for word in chosen):
        return _merged(chosen)
    config = deepcopy(_merged_once(tuple(chosen), _state_of_shipped()))
    config.hydra.runtime.cwd = os.getcwd()
    return config


def _merged(chosen: Sequence[str]) -> DictConfig:
    config: DictConfig = _initialised(
        lambda: compose("config", overrides=list(chosen), return_hydra_config=True)
    )
    return config


# a sweep's jobs differ in values more often than in choices; a copy takes a fifteenth of merging
@lru_cache(maxsize=512)
def _merged_once(chosen: tuple[str, ...], state: object) -> DictConfig:
    """The merged files. `state` is that of the files, which may be edited."""
    return _merged(chosen)


def _state_of_shipped() -> tuple[tuple[str, int], ...]:
    """Each of our files and when it was written."""
    files = shipped_folder("conf").rglob("*.yaml")
    return tuple(sorted((str(file), file.stat().st_mtime_ns) for file in files))


def _record(inner: DictConfig, chosen: Sequence[Override], changed: Sequence[Override]) -> None:
    """What `${hydra:overrides.task}` and `${hydra:job.override_dirname}` stand for."""
    for override in changed:
        typed = inner.overrides.hydra if override.is_hydra_override() else inner.overrides.task
        typed.append(override.input_line)
    naming = inner.job.config.override_dirname
    own = [override for override in [*chosen, *changed] if not override.is_hydra_override()]
    inner.job.override_dirname = get_overrides_dirname(
        own, naming.exclude_keys, naming.item_sep, naming.kv_sep
    )


def plain_option(path: Path, group: str) -> dict[str, Any] | None:
    """A group's values in an option's file, where composing would add nothing to them."""
    content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    if not isinstance(content, dict) or [*content] != [group] or "${" in path.read_text("utf-8"):
        return None
    found = content[group]
    return {str(key): value for key, value in found.items()} if isinstance(found, dict) else None


def _choices(recorded: Mapping[Any, Any]) -> dict[str, str]:
    return {
        str(group): str(option)
        for group, option in recorded.items()
        if not str(group).startswith("hydra/") and option is not None
    }


def _unresolved(config: DictConfig) -> dict[str, Any]:
    with_hydra = OmegaConf.to_container(config, resolve=False)
    assert isinstance(with_hydra, dict)
    return {str(key): value for key, value in with_hydra.items() if key != "hydra"}


def _plain(config: DictConfig) -> dict[str, Any]:
    own = OmegaConf.create(_unresolved(config))
    values = OmegaConf.to_container(own, resolve=True, throw_on_missing=False)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def folders(places: Sequence[str] = ()) -> list[Path]:
    """The folders that hold options: ours, the plug-ins', then `places`."""

    def work() -> list[Path]:
        loader = GlobalHydra.instance().config_loader()
        paths = [entry.path for entry in loader.get_search_path().get_path()]
        return [folder for path in [*paths, *places] if (folder := _folder(path)) is not None]

    found: list[Path] = _initialised(work)
    return found


def options(group: str, places: Sequence[str] = ()) -> dict[str, Path]:
    """A group's options and their files; of two with one name, the first counts.

    One in a folder of its own is named with it: `peer/nft`.
    """
    found: dict[str, Path] = {}
    for folder in (place / group for place in folders(places)):
        for file in sorted(folder.rglob("*.yaml")):
            found.setdefault(file.relative_to(folder).with_suffix("").as_posix(), file)
    return found


def _folder(path: str | None) -> Path | None:
    """The folder behind a search path entry, where it is a real one."""
    if path is None or path.startswith("structured:"):
        return None
    if path.startswith("file://"):
        return Path(path.removeprefix("file://"))
    if path.startswith("pkg://"):
        package = path.removeprefix("pkg://")
        return None if package.startswith("hydra") else _package_folder(package)
    return Path(path)


def _package_folder(package: str) -> Path | None:
    try:
        spec = find_spec(package)
    except ImportError:
        return None
    return Path(spec.origin).parent if spec and spec.origin else None


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


@dataclass(frozen=True)
class _Numbered:
    """A task of Hydra's that hands its number on."""

    work: Callable[[int], int]

    def __call__(self, config: DictConfig) -> int:
        return self.work(config.number)


def launch(
    launcher: str, words: Sequence[str], folder: Path, work: Callable[[int], int], count: int
) -> list[Any]:
    """Have a launcher plug-in do `work` for each number below `count`; what it returned or raised.

    Its own files are put into `folder`.
    """
    place = str(folder.resolve()).replace("'", "\\'")
    overrides = [
        *(f"hydra/launcher={launcher}", "hydra/job_logging=none", "hydra/hydra_logging=none"),
        *(f"hydra.sweep.dir='{place}'", "hydra.sweep.subdir=.", "hydra.output_subdir=null"),
        *("hydra.job.chdir=false", *words),
    ]

    def launched() -> list[Any]:
        loader = GlobalHydra.instance().config_loader()
        config = loader.load_configuration(None, overrides, hydra.types.RunMode.MULTIRUN)
        context = hydra.types.HydraContext(config_loader=loader, callbacks=Callbacks(config))
        made = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=_Numbered(work), config=config
        )
        jobs = [[f"+number={number}"] for number in range(count)]
        return [one._return_value for one in made.launch(jobs, initial_job_idx=0)]

    found: list[Any] = _initialised(launched)
    return found


def main(task: Callable[[Composed, list[str], Path], None], argv: Sequence[str]) -> None:
    """Hydra's own command line (multirun, `--cfg`, completion); calls `task` for each job."""
    _register_plugins()

    def job(config: DictConfig) -> None:
        inner = HydraConfig.get()
        changed = list(inner.overrides.task)
        task(
            Composed(_plain(config), _choices(inner.runtime.choices)),
            changed,
            Path(inner.sweep.dir),
        )

    sys.argv = ["rlfactory", *argv]
    folder = str(shipped_folder("conf").resolve())
    hydra.main(config_path=folder, config_name="config", **_VERSION)(job)()
