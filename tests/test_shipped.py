"""Where the files that come with the package are."""

from pathlib import Path

import pytest

from rlfactory import shipped
from rlfactory.shipped import shipped_folder


def test_both_folders_are_found() -> None:
    assert (shipped_folder("conf") / "config.yaml").is_file()
    assert (shipped_folder("sweeps") / "vgrpo_table6.yaml").is_file()


def test_in_a_wheel_they_are_inside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "site-packages" / "rlfactory" / "shipped.py"
    (module.parent / "conf").mkdir(parents=True)
    monkeypatch.setattr(shipped, "__file__", str(module))
    assert shipped_folder("conf") == module.parent / "conf"
    assert shipped_folder("sweeps") == tmp_path / "sweeps"
