"""Scripts as modules: files that no package holds."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_script(path: Path, name: str = "") -> ModuleType:
    """A new module of a file, in `sys.modules` under `name`, or that of the file."""
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
