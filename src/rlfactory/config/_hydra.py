"""The adapter to Hydra, the only module that imports it or OmegaConf.

Reads overrides, lists the files that they choose, changes values, and runs launcher plug-ins.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.defaults_list import create_defaults_list
from hydra._internal.utils import create_config_search_path
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override as Override
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import get_yaml_loader
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc

from rlfactory.config.options import packaged_folder
from rlfactory.config.schema.targets import with_defaults
from rlfactory.utils.data_files import yaml_loader

CompositionError = (
    *(HydraException, OmegaConfBaseException, yaml.YAMLError, UnicodeDecodeError),
    *(OSError, RecursionError),  # an unreadable file or one without a mapping; nested brackets
)


class _Folder(FileConfigSource):
    """A folder of options, of whose files Hydra reads the defaults; values are merged elsewhere."""

    def load_config(self, config_path: str) -> ConfigResult:
        file = Path(self.path, f"{config_path}.yaml")
        content = {k: v if k == "defaults" else None for k, v in read_yaml(file).items()}
        with file.open(encoding="utf-8") as opened:
            header = self._get_header_dict(opened.read(512))
        return ConfigResult(self.provider, self.path, OmegaConf.create(content), header)


class _Repository(ConfigRepository):
    """The folders of options."""

    def initialize_sources(self, folders: Any) -> None:
        self.sources = [_Folder("rlfactory", f"file://{folder}") for folder in folders]

    def load_config(self, config_path: str) -> ConfigResult | None:
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        if source is None:
            return None
        stat = Path(source.path, f"{config_path}.yaml").stat()
        return _with_defaults_list(source.path, config_path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1024)
def _with_defaults_list(folder: str, name: str, *state: int) -> ConfigResult | None:
    """Hydra's reading of a file. `state` is in the cache key, since the file may be edited."""
    return ConfigRepository.load_config(_Repository([folder]), name)  # type: ignore[arg-type]


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


def parse(overrides: Sequence[str]) -> list[Override]:
    """Parse overrides; a HydraException names the one that can't be read."""
    return OverridesParser.create().parse_overrides(list(overrides))


def overrides_dirname(overrides: Sequence[Override]) -> str:
    """The overrides in one word, sorted, as Hydra names folders."""
    return get_overrides_dirname([*overrides], exclude_keys=[], item_sep=",", kv_sep="=")


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


def listed(
    chosen: Sequence[str], folders: Sequence[Path]
) -> tuple[dict[str, str], list[ListedFile]]:
    """The option chosen of each group by overrides, and the files to merge, in order, from the
    folders of options.
    """
    version.setbase("1.3")
    repository = CachingConfigRepository(_Repository(folders))  # type: ignore[arg-type]
    found = create_defaults_list(repository, "config", parse(chosen), False, skip_missing=False)
    if others := [o.key_or_group for o in found.config_overrides]:
        raise HydraException(f"there is no group {others[0]}")
    known = found.overrides.known_choices.items()
    choices = {group: str(option) for group, option in known if option is not None}
    files = [(file.config_path, file.package or "", file.parent or "") for file in found.defaults]
    return choices, [ListedFile(name, *rest) for name, *rest in files if name]


def changed(
    values: Mapping[str, Any], overrides: Sequence[Override], hydra_values: Mapping[str, Any]
) -> dict[str, Any]:
    """The values with single ones overridden, `${...}` resolved, `${hydra:...}` by `hydra_values`;
    what is missing is `???`.
    """
    setup_globals()
    # OmegaConf takes most of a plan's time: it gets what is overridden, resolved or referred to
    typed = {word for o in overrides for word in re.findall(r"\w+", o.input_line or "")}
    texts = {key: text for key, value in values.items() if "${" in (text := repr(value))}
    named = typed.union(texts, *(re.findall(r"\w+", text) for text in texts.values()))
    config = OmegaConf.create({key: value for key, value in values.items() if key in named})
    OmegaConf.set_struct(config, True)
    ConfigLoaderImpl._apply_overrides_to_config([*overrides], config)
    shared = HydraConfig.instance()
    own: Any = shared.cfg
    shared.cfg = OmegaConf.create({"hydra": hydra_values})  # type: ignore[assignment]
    OmegaConf.register_new_resolver("oc.env", _typed_variable, replace=True)
    try:
        found = {str(key): _resolved(config, key) for key in config}
    finally:  # a caller's application has its own
        shared.cfg = own
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)
    found |= {key: deepcopy(value) for key, value in values.items() if key not in named}
    return {key: found[key] for key in dict.fromkeys([*values, *found]) if key in found}


def _resolved(config: DictConfig, key: Any) -> Any:
    if OmegaConf.is_missing(config, key):
        return "???"
    value = config[key]
    if not OmegaConf.is_config(value):
        return value
    return OmegaConf.to_container(value, resolve=True, throw_on_missing=False)


def read_yaml(path: Path, group: str = "") -> dict[str, Any]:
    """A file's content as Hydra reads it, `${...}` unresolved. Not to be changed.

    With the `group` that it is an option of, its component has all options.

    Raises:
        HydraException: it can't be read, or holds no mapping.
    """
    stat = path.stat()
    return _read_yaml(path, group, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1024)
def _read_yaml(path: Path, group: str, *state: int) -> dict[str, Any]:
    """The content of a file. `state` is part of the cache key, since the file may be edited."""
    try:
        with path.open(encoding="utf-8") as file:
            content = yaml.load(file, Loader=_loader())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise HydraException(f"{path} can't be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict | None):
        raise HydraException(f"{path} holds no mapping of keys to values")
    return with_defaults({str(key): value for key, value in (content or {}).items()}, group)


@cache
def _loader() -> Any:
    """OmegaConf's loader, derived from the C library's: Python's takes a third of a plan's time."""
    python_loader = yaml.SafeLoader
    yaml.SafeLoader = yaml_loader()  # type: ignore[misc]
    try:
        return get_yaml_loader()
    finally:
        yaml.SafeLoader = python_loader  # type: ignore[misc]


def _numbered(work: Callable[[int], int], config: DictConfig) -> int:
    """A task function for Hydra's launchers: calls `work` with the number of its job."""
    return work(config.number)


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
    folders = (f"hydra.sweep.dir='{quoted}'", "hydra.sweep.subdir=.", "hydra.output_subdir=null")
    loader, config = _with_launcher(launcher, [*folders, "hydra.job.chdir=false", *words])
    plugins = Plugins.instance()
    context = hydra.types.HydraContext(config_loader=loader, callbacks=Callbacks(config))
    plugin = plugins.instantiate_launcher(
        hydra_context=context, task_function=partial(_numbered, work), config=config
    )
    jobs = [[f"+number={number}"] for number in range(count)]
    return [job._return_value for job in plugin.launch(jobs, initial_job_idx=0)]


def launcher_options(launcher: str, words: Sequence[str] = ()) -> list[str]:
    """The keys of a launcher plug-in, set up by words `hydra.launcher.KEY=VALUE`.

    Raises:
        CompositionError: a word names no such key, or its value has another type.
    """
    _, config = _with_launcher(launcher, words)
    return sorted(key for key in config.hydra.launcher if key != "_target_")


def _with_launcher(launcher: str, words: Sequence[str]) -> tuple[ConfigLoaderImpl, DictConfig]:
    """Hydra's own configuration with a launcher plug-in, and what has composed it."""
    logging = ("hydra/job_logging=none", "hydra/hydra_logging=none")
    version.setbase("1.3")
    setup_globals()
    loader = ConfigLoaderImpl(create_config_search_path(None))
    overrides = [f"hydra/launcher={launcher}", *logging, *words]
    return loader, loader.load_configuration(None, overrides, hydra.types.RunMode.MULTIRUN)


def install_completion(argv: Sequence[str]) -> None:
    """Run Hydra's `-sc install=SHELL` or `-sc uninstall=SHELL`, which prints a script."""
    sys.argv = ["rlfactory", *argv]
    folder = str(packaged_folder("conf").resolve())
    # 1.4 deprecates the argument that 1.3 wants
    base = {"version_base": "1.3"} if hydra.__version__ < "1.4" else {}
    hydra.main(config_path=folder, config_name="config", **base)(lambda config: None)()
