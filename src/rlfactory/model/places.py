"""Where a model lies: in a folder, or where the hub's files are kept. Nothing here asks the hub."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlfactory.zoo.models import ZOO_PREFIX, zoo_path


def folder_of(path: str) -> Path | None:
    """The folder of a model, whatever it is called by; None where this machine has none."""
    if path.startswith(ZOO_PREFIX):
        try:
            return zoo_path(path.removeprefix(ZOO_PREFIX))
        except ValueError:
            return None
    folder = Path(path).expanduser()
    return folder if os.path.isdir(folder) else snapshot(path)


def snapshot(repo: str) -> Path | None:
    """The folder of a hub id's files as they were last fetched, if they were."""
    if repo.count("/") != 1:
        return None
    kept = hub_cache() / f"models--{repo.replace('/', '--')}"
    try:
        commit = (kept / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    folder = kept / "snapshots" / commit
    return folder if os.path.isdir(folder) else None


def hub_cache() -> Path:
    """Where huggingface_hub keeps what it fetches, by the variables that it reads."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{base}/huggingface"
    place = os.environ.get("HF_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(place)).expanduser()


def is_offline() -> bool:
    """Whether huggingface_hub was told to stay away from the network."""
    word = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return word.upper() in ("1", "ON", "YES", "TRUE")


def read_json(path: Path) -> Mapping[str, Any]:
    """What a configuration file holds; nothing where it is missing or broken."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
