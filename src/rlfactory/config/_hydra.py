"""The adapter to Hydra, the only module that imports it or OmegaConf.

Merges files, changes values, lists the search path, runs launcher plug-ins and Hydra's command
line.
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
from hydra import compose, initialize_config_dir
from hydra._internal import defaults_list
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.core_plugins import file_config_source, importlib_resources_config_source
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import InputDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override as Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import get_yaml_loader
from omegaconf.errors import OmegaConfBaseException

from rlfactory.config.paths import packaged_folder
from rlfactory.config.schema.root import COMPONENTS
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


# named as Hydra's: a process of a launcher registers those again, and compares the names
class FileConfigSource(file_config_source.FileConfigSource):
    """Files of options, whose components have the defaults of their signatures beneath."""

    def load_config(self, config_path: str) -> ConfigResult:
        return _loaded(self, config_path, super().load_config)


class ImportlibResourcesConfigSource(
    importlib_resources_config_source.ImportlibResourcesConfigSource
):
    """The same in packages, as plug-ins have them."""

    def load_config(self, config_path: str) -> ConfigResult:
        return _loaded(self, config_path, super().load_config)


_read = dict[tuple[str, str], tuple[tuple[int, ...], bytes]]()
"""The files of our own and of Hydra, by source and path: the state, and the content, pickled."""


def _loaded(
    source: ConfigSource, config_path: str, load: Callable[[str], ConfigResult]
) -> ConfigResult:
    """A file of options. Those that are packaged are parsed once while they stay the same; a copy
    is given, as Hydra changes what it merges: unpickling takes a fifth of the time of `deepcopy`.
    """
    state, key = _state(source, config_path), (source.path, config_path)
    if state is None:
        return _completed(load(config_path), config_path)
    if key not in _read or _read[key][0] != state:
        _read[key] = (state, dumps(_completed(load(config_path), config_path), HIGHEST_PROTOCOL))
    found: ConfigResult = loads(_read[key][1])
    return found


def _state(source: ConfigSource, config_path: str) -> tuple[int, ...] | None:
    """What changes with a packaged file; None for a user's, and where there is no file."""
    if source.path == "hydra.conf":
        return ()
    if source.path != str(packaged_folder("conf").resolve()):
        return None
    try:
        stat = os.stat(os.path.join(source.path, f"{config_path}.yaml"))
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _completed(loaded: ConfigResult, config_path: str) -> ConfigResult:
    group = config_path.partition("/")[0]
    if group not in COMPONENTS or not isinstance(loaded.config, DictConfig):
        return loaded
    content: Any = OmegaConf.to_container(loaded.config, resolve=False)
    filled = with_defaults(content, group)
    if filled is content:
        return loaded
    if "_target_" in content:
        loaded.config = OmegaConf.create(filled)
    else:
        loaded.config[group] = filled[group]
    return loaded


def _register_plugins() -> None:
    Plugins.instance().register(_InstalledPlugins)
    # `register` keeps the first source of a scheme
    types = SourcesRegistry.instance().types
    types |= {
        source.scheme(): source for source in (FileConfigSource, ImportlibResourcesConfigSource)
    }
    OmegaConf.register_new_resolver("oc.env", _typed_variable, replace=True)


_typed_variables = set[str]()


def note_variables(words: Sequence[str]) -> None:
    """Let typed words read the environment variables that they name: `KEY='${oc.env:NAME}'`."""
    _typed_variables.update(n for word in words for n in re.findall(r"oc\.env:\s*(\w+)", word))


def _typed_variable(name: str, *default: str | None) -> str | None:
    """The resolver `oc.env`: a file that somebody sent must not carry a secret of the environment
    into the configuration, which is written down and sent to loggers.
    """
    if name not in _typed_variables:
        message = (
            f"a file reads the environment variable {name} by oc.env, and the configuration is"
            f" written down and logged; type KEY='${{oc.env:{name}}}' if that may be"
        )
        raise HydraException(message)
    if name not in os.environ and not default:
        raise HydraException(f"the environment variable {name} is not set")
    return os.environ.get(name, *default)


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


def merged(chosen: Sequence[str]) -> DictConfig:
    """The merged files of the `chosen` options, those of plug-ins included."""
    with _initialised():
        return compose("config", overrides=list(chosen), return_hydra_config=True)


def written(config: DictConfig) -> dict[str, Any]:
    """The values as written in the files, `${...}` unresolved."""
    with_hydra: Any = OmegaConf.to_container(config, resolve=False)
    return {str(key): value for key, value in with_hydra.items() if key != "hydra"}


def options_of(config: DictConfig) -> dict[str, str]:
    """The option chosen of each group."""
    return {
        str(group): str(option)
        for group, option in config.hydra.runtime.choices.items()
        if not str(group).startswith("hydra/") and option is not None
    }


def swept(config: DictConfig) -> list[str]:
    """The words by which a file sweeps, in a multirun: its `hydra.sweeper.params`."""
    return [f"{key}={values}" for key, values in (config.hydra.sweeper.get("params") or {}).items()]


def plain(config: DictConfig) -> dict[str, Any]:
    """The values, `${...}` resolved; what is missing is `???`."""
    return {str(key): _resolved(config, key) for key in config if key != "hydra"}


def _resolved(config: DictConfig, key: Any) -> Any:
    if OmegaConf.is_missing(config, key):
        return "???"
    value = config[key]
    if not OmegaConf.is_config(value):
        return value
    return OmegaConf.to_container(value, resolve=True, throw_on_missing=False)


def set_nodes(config: DictConfig, nodes: Mapping[str, Any]) -> None:
    """Give groups other values, `${...}` unresolved."""
    for group, node in nodes.items():
        OmegaConf.update(config, group, node, merge=False, force_add=True)


def apply_overrides(
    config: DictConfig, chosen: Sequence[Override], changed: Sequence[Override]
) -> None:
    """Change single values; `chosen` are the overrides by which the files were merged."""
    ConfigLoaderImpl._apply_overrides_to_config([*changed], config)
    _record_overrides(config.hydra, chosen, changed)
    # `set_config` copies it, for a tenth of a plan's time
    HydraConfig.instance().cfg = config  # type: ignore[assignment]


def _record_overrides(
    hydra_config: DictConfig, chosen: Sequence[Override], changed: Sequence[Override]
) -> None:
    """Set what `${hydra:overrides.task}` and `${hydra:job.override_dirname}` resolve to."""
    for override in changed:
        overrides = hydra_config.overrides
        kind = overrides.hydra if override.is_hydra_override() else overrides.task
        kind.append(override.input_line)
    naming = hydra_config.job.config.override_dirname
    own = [o for o in [*chosen, *changed] if not o.is_hydra_override()]
    own = [o for o in own if o.key_or_group != "run_dir"]  # which may itself be named so
    hydra_config.job.override_dirname = get_overrides_dirname(
        own, naming.exclude_keys, naming.item_sep, naming.kv_sep
    )


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


def merged_files(overrides: Sequence[str]) -> list[str]:
    """The files that are merged, in order, as `GROUP/NAME`."""
    with _initialised():
        loader = GlobalHydra.instance().config_loader()
        result = loader.compute_defaults_list("config", list(overrides), hydra.types.RunMode.RUN)
    paths = [default.config_path for default in result.defaults]
    return [path for path in paths if path and not path.startswith("hydra/")]


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


def main(task: Callable[[list[str], Path, int], None], argv: Sequence[str]) -> None:
    """Run Hydra's command line (multirun, `--cfg`, completion).

    Args:
        task: called for each job with its overrides, the folder of the multirun, and the number of
            the job from 0.
        argv: the words of the command line.
    """
    _register_plugins()
    note_variables(argv)

    def job(config: DictConfig) -> None:
        hydra_config = HydraConfig.get()
        sweep = Path(hydra_config.sweep.dir)
        task(list(hydra_config.overrides.task), sweep, int(hydra_config.job.num))

    sys.argv = ["rlfactory", *argv]
    folder = str(packaged_folder("conf").resolve())
    hydra.main(config_path=folder, config_name="config", **_VERSION)(job)()
