"""Where a model lies: in the zoo, in a folder, or on a hub."""

from pathlib import Path

import pytest

from rlfactory.zoo.models import resolve, zoo_path


def test_shipped_models_are_folders() -> None:
    for name in ("tiny_sd3", "tiny_sd", "tiny_flux", "tiny_gpt2", "sentiment", "randomwalks"):
        assert (zoo_path(name) / "README.md").is_file(), "each has its card"
    assert resolve("zoo:tiny_sd3", "model_index.json") == str(zoo_path("tiny_sd3"))


def test_an_unknown_one_lists_those_there_are() -> None:
    with pytest.raises(
        ValueError, match="randomwalks, sentiment, tiny_flux, tiny_gpt2, tiny_sd, tiny_sd3"
    ):
        resolve("zoo:none", "config.json")


def test_a_folder_must_hold_its_index(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no config.json"):
        resolve(str(tmp_path), "config.json")
    (tmp_path / "config.json").write_text("{}")
    assert resolve(str(tmp_path), "config.json") == str(tmp_path)


@pytest.mark.parametrize("path", ["/no/where", "./nowhere", "~/nowhere-at-all", "a/b/c"])
def test_what_can_only_be_a_folder_must_exist(path: str) -> None:
    with pytest.raises(ValueError, match="there is no folder"):
        resolve(path, "config.json")


@pytest.mark.parametrize("path", ["owner/name", "gpt2"])
def test_anything_else_is_one_of_the_hub(path: str) -> None:
    assert resolve(path, "config.json") == path
