"""Where the files that come with the package are."""

from rlfactory.shipped import shipped_folder


def test_both_folders_are_found() -> None:
    assert (shipped_folder("conf") / "config.yaml").is_file()
    assert shipped_folder("sweeps").is_dir()
