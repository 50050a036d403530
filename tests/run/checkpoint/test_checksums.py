"""What a folder must hold: every change of it is found."""

import hashlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.run.checkpoint.checksums import (
    MANIFEST_FILE,
    DamagedError,
    digest,
    read_manifest,
    verify,
    versions,
    write_manifest,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "step"
    (made / "deep" / "er").mkdir(parents=True)
    (made / "a.bin").write_bytes(bytes(range(40)))
    (made / "deep" / "b.txt").write_text("some text\n")
    (made / "deep" / "er" / "empty").write_bytes(b"")
    write_manifest(made, {"step": 3, "versions": {"torch": "2.6"}})
    return made


def test_a_folder_as_it_was_written_is_sound(folder: Path) -> None:
    content = verify(folder)
    assert content == read_manifest(folder)
    assert content["step"] == 3
    assert content["files"].keys() == {"a.bin", "deep/b.txt", "deep/er/empty"}
    assert content["files"]["a.bin"]["size"] == 40


@pytest.mark.parametrize("name", ["a.bin", "deep/b.txt", MANIFEST_FILE])
def test_every_flipped_bit_of_every_byte_is_found(folder: Path, name: str) -> None:
    path, rng = folder / name, random.Random(0)
    data = path.read_bytes()
    for i in range(len(data)):
        flipped = bytearray(data)
        flipped[i] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(DamagedError):
            verify(folder)
    path.write_bytes(data)
    verify(folder)


@pytest.mark.parametrize("name", ["a.bin", "deep/b.txt", MANIFEST_FILE])
def test_every_truncation_is_found(folder: Path, name: str) -> None:
    path = folder / name
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(DamagedError):
            verify(folder)


def _forge(folder: Path) -> None:
    content = json.loads((folder / MANIFEST_FILE).read_text())
    content["files"]["a.bin"]["size"] = 41
    (folder / MANIFEST_FILE).write_text(json.dumps(content, indent=1) + "\n")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda f: (f / "a.bin").unlink(), "a.bin is missing"),
        (lambda f: (f / "deep/er/empty").unlink(), "deep/er/empty is missing"),
        (lambda f: (f / "more").write_text(""), "more does not belong"),
        (lambda f: (f / "a.bin").rename(f / "c.bin"), "a.bin is missing"),
        (lambda f: (f / "a.bin").write_bytes(bytes(40)), "a.bin has other content"),
        (lambda f: (f / "a.bin").write_bytes(bytes(41)), "41 bytes instead of 40"),
        (lambda f: (f / MANIFEST_FILE).unlink(), "never finished"),
        (lambda f: (f / MANIFEST_FILE).write_text("[]"), "can't be read"),
        (_forge, "MANIFEST.json has other content"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, harm: Callable[[Path], None], said: str) -> None:
    harm(folder)
    with pytest.raises(DamagedError, match=said):
        verify(folder)


def test_a_later_format_is_not_guessed_at(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"format": 99})
    with pytest.raises(DamagedError, match="format is 99"):
        verify(tmp_path)


def test_every_library_is_named_and_the_order_of_keys_means_nothing() -> None:
    assert all(versions().values())
    assert digest({"a": 1, "b": [2.0]}) == digest({"b": [2.0], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "deep/../../outside"])
def test_a_manifest_names_nothing_outside(folder: Path, name: str) -> None:
    (folder.parent / "outside").write_bytes(b"")
    content = read_manifest(folder)
    content["files"][name] = {"size": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    content.pop("digest", None)
    whole = {**content, "digest": digest(content)}
    (folder / MANIFEST_FILE).write_text(json.dumps(whole, indent=1) + "\n")
    with pytest.raises(DamagedError, match="is missing"):
        verify(folder)


@pytest.mark.parametrize("name", ["a.bin", "deep", MANIFEST_FILE])
def test_a_link_is_damage_even_to_the_same_content(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent / "elsewhere")
    (folder / name).symlink_to(folder.parent / "elsewhere")
    with pytest.raises(DamagedError, match="not a regular file"):
        verify(folder)


def test_what_is_no_file_is_never_opened(folder: Path) -> None:
    (folder / "deep" / "er" / "empty").unlink()
    os.mkfifo(folder / "deep" / "er" / "empty")
    with pytest.raises(DamagedError, match="not a regular file"):
        verify(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"files": []},
        {"files": {"a.bin": 3}},
        {"files": {"a.bin": {"size": "40", "sha256": ""}}},
        {"files": {"a.bin": {"size": 40, "sha256": None}}},
        {"versions": []},
        {"format": "1"},
        {"files": None},
    ],
)
def test_a_manifest_of_other_types_is_damage(folder: Path, change: dict[str, object]) -> None:
    content = read_manifest(folder) | change
    signed = content | {"digest": digest(content)}
    (folder / MANIFEST_FILE).write_text(json.dumps(signed, indent=1) + "\n")
    with pytest.raises(DamagedError, match="MANIFEST.json can't be read"):
        verify(folder)


@pytest.mark.parametrize("text", ["[" * 10_000, "[]", "3", "{}", "\ud800"])
def test_a_manifest_that_is_none_is_damage(folder: Path, text: str) -> None:
    (folder / MANIFEST_FILE).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(DamagedError, match="MANIFEST.json can't be read"):
        verify(folder)
