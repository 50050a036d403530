"""Where options and the files that come with the package are."""

from pathlib import Path

import pytest

from rlfactory.config import options
from rlfactory.config.options import packaged_folder


def test_both_folders_are_found() -> None:
    assert (packaged_folder("conf") / "config.yaml").is_file()
    assert (packaged_folder("sweeps") / "vgrpo_table6.yaml").is_file()


def test_in_a_wheel_they_are_inside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "site-packages" / "rlfactory" / "config" / "options.py"
    package = module.parents[1]
    (package / "conf").mkdir(parents=True)
    monkeypatch.setattr(options, "__file__", str(module))
    assert packaged_folder("conf") == package / "conf"
    assert packaged_folder("sweeps") == tmp_path / "sweeps"
