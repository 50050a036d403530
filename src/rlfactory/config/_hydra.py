"""The adapter to Hydra, the only module that imports it or OmegaConf.

Reads overrides, lists the files that they choose, changes values, and runs launcher plug-ins.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from pickle import HIGHEST_PROTOCOL, dumps, loads  # of objects in memory alone
from typing import Any

import hydra
import yaml
from hydra import initialize_config_dir
from hydra._internal import defaults_list
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins import file_config_source
from hydra._internal.defaults_list import create_defaults_list
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import InputDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override as Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import get_yaml_loader
from omegaconf.errors import OmegaConfBaseException

from rlfactory.config.paths import packaged_folder
from rlfactory.config.schema.targets import plugins, with_defaults

# 1.4 deprecates the argument that 1.3 wants
_VERSION = {"version_base": "1.3"} if hydra.__version__ < "1.4" else {}

CompositionError = (
    *(HydraException, OmegaConfBaseException, yaml.YAMLError, UnicodeDecodeError),
    *(OSError, RecursionError),  # an unreadable file or one without a mapping; nested brackets
)


class _InstalledPlugins(SearchPathPlugin):
    """Adds the `conf` package of each installed plug-in to Hydra's search path."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for name, package in plugins().items():
            search_path.append(provider=name, path=f"pkg://{package}")


class FileConfigSource(file_config_source.FileConfigSource):
    """Files of options, each parsed once while it stays the same."""

    def load_config(self, config_path: str) -> ConfigResult:
        file = Path(self.path, f"{config_path}.yaml")
        state = file.stat().st_mtime_ns if file.is_file() else None
        found: ConfigResult = loads(_pickled(self.provider, self.path, config_path, state))
        return found


# a copy, as Hydra changes what it reads: unpickling takes a fifth of the time of `deepcopy`
@lru_cache(maxsize=512)
def _pickled(provider: str, path: str, config_path: str, state: object) -> bytes:
    """The content of a file. `state` is part of the cache key, since the file may be edited."""
    source = file_config_source.FileConfigSource(provider, path)
    return dumps(source.load_config(config_path), HIGHEST_PROTOCOL)


def _register_plugins() -> None:
    Plugins.instance().register(_InstalledPlugins)
    # `register` keeps the first source of a scheme
    SourcesRegistry.instance().types[FileConfigSource.scheme()] = FileConfigSource
    OmegaConf.register_new_resolver("oc.env", _typed_variable, replace=True)


_typed_variables = set[str]()


def note_variables(words: Sequence[str]) -> None:
    """Let typed words read the environment variables that they name: `KEY='${oc.env:NAME}'`."""
    _typed_variables.update(n for word in words for n in re.findall(r"oc\.env:\s*(\w+)", word))


def _typed_variable(name: str, default: str | None = None) -> str | None:
    """The resolver `oc.env`: a file that somebody sent must not carry a secret of the environment
    into the configuration, which is written down and sent to loggers.
    """
    if name not in _typed_variables:
        message = (
            f"a file reads the environment variable {name} by oc.env, and the configuration is"
            f" written down and logged; type KEY='${{oc.env:{name}}}' if that may be"
        )
        raise HydraException(message)
    return os.environ.get(name, default)


@contextmanager
def _initialised() -> Iterator[None]:
    """Inside the block, Hydra is initialised with our folder of configurations."""
    _register_plugins()
    running = GlobalHydra.instance().hydra  # a command line of Hydra whose job composes again
    GlobalHydra.instance().clear()
    try:
        folder = str(packaged_folder("conf").resolve())
        with initialize_config_dir(folder, **_VERSION), _fast_yaml(), _few_choice_maps():
            yield
    finally:
        GlobalHydra.instance().hydra = running


@contextmanager
def _fast_yaml() -> Iterator[None]:
    """Let OmegaConf, which derives its loader from `yaml.SafeLoader`, parse with the C library.

    Parsing in Python is a third of the time of composing.
    """
    python_loader = yaml.SafeLoader
    yaml.SafeLoader = getattr(yaml, "CSafeLoader", python_loader)  # type: ignore[misc]
    try:
        yield
    finally:
        yaml.SafeLoader = python_loader  # type: ignore[misc]


@contextmanager
def _few_choice_maps() -> Iterator[None]:
    """Let Hydra list the choices only for lists of defaults with `${...}`, which may name them.

    It lists them for each file, for a quarter of the time of composing.
    """
    listed = defaults_list._create_interpolation_map

    def listed_if_read(overrides: Any, defaults: list[InputDefault], self_added: bool) -> Any:
        read = any(default.is_interpolation() for default in defaults)
        return listed(overrides, defaults, self_added) if read else None

    defaults_list._create_interpolation_map = listed_if_read  # type: ignore[assignment]
    try:
        yield
    finally:
        defaults_list._create_interpolation_map = listed


def parse(overrides: Sequence[str]) -> list[Override]:
    """Parse overrides; a HydraException names the one that can't be read."""
    parsed: list[Override] = OverridesParser.create().parse_overrides(list(overrides))
    return parsed


@dataclass(frozen=True)
class ListedFile:
    """A file to merge.

    Attributes:
        name: its place below a folder of options, without `.yaml`.
        package: the key below which its values lie; empty for the root.
        parent: the name of the file whose defaults list it.
    """

    name: str
    package: str
    parent: str


def listed(chosen: Sequence[str]) -> tuple[dict[str, str], list[ListedFile]]:
    """The option chosen of each group, and the files to merge, in order.

    Args:
        chosen: overrides that choose options.
    """
    with _initialised():
        loader: Any = GlobalHydra.instance().config_loader()
        overrides, repo = loader._parse_overrides_and_create_caching_repo("config", [*chosen])
        found = create_defaults_list(repo, "config", overrides, False, skip_missing=False)
    for other in found.config_overrides:
        if other.key_or_group != "hydra.searchpath":
            raise HydraException(f"there is no group {other.key_or_group}")
    known = found.overrides.known_choices.items()
    choices = {group: str(option) for group, option in known if option is not None}
    files = [
        ListedFile(file.config_path, file.package or "", file.parent or "")
        for file in found.defaults
        if file.config_path
    ]
    return choices, files


def changed(
    values: Mapping[str, Any], overrides: Sequence[Override], hydra_values: Mapping[str, Any]
) -> dict[str, Any]:
    """The values with single ones overridden, `${...}` resolved; what is missing is `???`.

    Args:
        values: the values, `${...}` unresolved.
        overrides: overrides of values.
        hydra_values: what `${hydra:...}` resolves to.
    """
    config = OmegaConf.create(dict(values))
    OmegaConf.set_struct(config, True)
    ConfigLoaderImpl._apply_overrides_to_config([*overrides], config)
    HydraConfig.instance().cfg = OmegaConf.create({"hydra": hydra_values})
    return {str(key): _resolved(config, key) for key in config}


def _resolved(config: DictConfig, key: Any) -> Any:
    if OmegaConf.is_missing(config, key):
        return "???"
    value = config[key]
    if not OmegaConf.is_config(value):
        return value
    return OmegaConf.to_container(value, resolve=True, throw_on_missing=False)


def read_yaml(path: Path, group: str = "") -> dict[str, Any]:
    """A file's content as Hydra reads it, `${...}` unresolved; empty if it is no mapping.

    With the `group` that it is an option of, its component has all options. Not to be changed.
    """
    stat = path.stat()
    return _read_yaml(path, group, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=512)
def _read_yaml(path: Path, group: str, *state: int) -> dict[str, Any]:
    """The content of a file. `state` is part of the cache key, since the file may be edited."""
    with _fast_yaml(), path.open(encoding="utf-8") as file:
        content = yaml.load(file, Loader=get_yaml_loader())
    named = {str(k): v for k, v in content.items()} if isinstance(content, dict) else {}
    return with_defaults(named, group)


def search_path() -> list[str | None]:
    """The entries of Hydra's search path: our `conf`, the plug-ins' packages and Hydra's own."""
    return _search_path(tuple(plugins().items()))


@lru_cache
def _search_path(installed: tuple[tuple[str, str], ...]) -> list[str | None]:
    """The entries with some plug-ins, which are a part of the cache key."""
    with _initialised():
        loader = GlobalHydra.instance().config_loader()
        return [entry.path for entry in loader.get_search_path().get_path()]


@dataclass(frozen=True)
class _NumberedTask:
    """A task function for Hydra's launchers that calls `work` with the number of its job."""

    work: Callable[[int], int]

    def __call__(self, config: DictConfig) -> int:
        return self.work(config.number)


def run_with_hydra_launcher(
    launcher: str, words: Sequence[str], folder: Path, work: Callable[[int], int], count: int
) -> list[Any]:
    """Run `work(0)` ... `work(count - 1)` with a launcher plug-in of Hydra.

    Args:
        launcher: the option of `hydra/launcher`.
        words: further overrides of Hydra's configuration.
        folder: where the launcher writes its own files.
        work: what each job does; may be pickled.
        count: the number of jobs.

    Returns:
        What each job returned or raised.
    """
    quoted = str(folder.resolve()).replace("'", "\\'")
    overrides = [
        *(f"hydra/launcher={launcher}", "hydra/job_logging=none", "hydra/hydra_logging=none"),
        *(f"hydra.sweep.dir='{quoted}'", "hydra.sweep.subdir=.", "hydra.output_subdir=null"),
        *("hydra.job.chdir=false", *words),
    ]
    with _initialised():
        loader = GlobalHydra.instance().config_loader()
        config = loader.load_configuration(None, overrides, hydra.types.RunMode.MULTIRUN)
        context = hydra.types.HydraContext(config_loader=loader, callbacks=Callbacks(config))
        plugin = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=_NumberedTask(work), config=config
        )
        jobs = [[f"+number={number}"] for number in range(count)]
        return [job._return_value for job in plugin.launch(jobs, initial_job_idx=0)]


def install_completion(argv: Sequence[str]) -> None:
    """Run Hydra's `-sc install=SHELL` or `-sc uninstall=SHELL`, which prints a script."""
    sys.argv = ["rlfactory", *argv]
    folder = str(packaged_folder("conf").resolve())
    hydra.main(config_path=folder, config_name="config", **_VERSION)(lambda config: None)()
