"""The version of this package, which `pyproject.toml` reads here, and those of others."""

from functools import cache

__version__ = "0.1.0"


@cache  # each lookup takes milliseconds, and every checkpoint has several
def installed_version(package: str) -> str | None:
    """The installed version of a package; None without one."""
    if package == "rlfactory":
        return __version__
    # imported here: `import rlfactory` reads this file, and imports little
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
