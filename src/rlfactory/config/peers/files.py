"""Which library a configuration file is for, and its translation."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config.peers import flow_factory, flow_grpo, trl
from rlfactory.config.peers.translation import Translation
from rlfactory.config.problems import PlanError, Problem

KINDS = "YAML of Flow-Factory, FILE.py:NAME of flow_grpo or ddpo-pytorch, YAML or JSON of TRL"


def translate_file(source: str, processes: int = 1) -> Translation:
    """Translate a configuration file of another library.

    Args:
        source: a path; `FILE.py:NAME` for a function that returns a configuration.
        processes: GPUs that a file is for which does not say it.

    Raises:
        PlanError: the file can't be read, or is none that is known.
    """
    path, _, name = source.partition(":")
    file = Path(path).expanduser()
    if not file.is_file():
        raise PlanError([Problem(source, f"there is no file {path}; allowed is {KINDS}")])
    if file.suffix == ".py":
        return flow_grpo.translate(file, name or "get_config", processes)
    content = _read(file)
    if "trainer_type" in content.get("train", {}) and "model" in content:
        return flow_factory.translate(content, Path())
    if trl.is_config(content):
        return trl.translate(content, processes)
    raise PlanError([Problem(source, f"has the keys of no known library; allowed is {KINDS}")])


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        content = json.loads(text) if file.suffix == ".json" else yaml.load(text, _PlainSafeLoader)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise PlanError(
            [Problem(str(file), f"can't be read: {' '.join(str(error).split())}")]
        ) from error
    if not isinstance(content, dict):
        raise PlanError([Problem(str(file), "holds no mapping of keys to values")])
    return content


class _PlainSafeLoader(yaml.SafeLoader):
    """YAML with numbers such as 1e-4, which PyYAML takes for texts."""


_PlainSafeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)
