"""Files that are whole, or not there."""

import math
import os
from pathlib import Path

import pytest

from rlfactory.run.atomic_write import flush, is_unfinished, new_file, write_json, write_text


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_text(tmp_path / "STATUS", "running")
    write_text(tmp_path / "STATUS", "done")
    assert [p.name for p in tmp_path.iterdir()] == ["STATUS"]
    assert (tmp_path / "STATUS").read_text() == "done"


def test_a_number_that_json_lacks_is_written_or_refused_with_nothing_changed(
    tmp_path: Path,
) -> None:
    write_json(tmp_path / "found.json", [math.nan])
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "found.json", [math.inf], allow_nan=False)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["[\n NaN\n]\n"]


def test_what_a_killed_writer_leaves_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    def kill(*_: object, **__: object) -> None:
        raise KilledError

    path = tmp_path / "STATUS"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", kill)
        patched.setattr(Path, "unlink", kill)
        with pytest.raises(KilledError):
            write_text(path, "done")
    (left,) = tmp_path.iterdir()
    assert is_unfinished(left)
    assert not is_unfinished(path)


def test_names_in_a_folder_can_be_flushed(tmp_path: Path) -> None:
    flush(tmp_path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_link_or_a_pipe_is_replaced(tmp_path: Path, kind: str) -> None:
    mine, place = tmp_path / "mine", tmp_path / "strip.png"
    mine.write_text("mine")
    if kind == "link":
        place.symlink_to(mine)
    else:
        os.mkfifo(place)
    with new_file(place) as file:
        file.write(b"new")
    assert not place.is_symlink()
    assert place.read_bytes() == b"new"
    assert mine.read_text() == "mine"
