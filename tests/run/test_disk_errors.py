"""A disk that is full, read-only or gone: one clear message."""

import errno
import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from rlfactory.run.disk_errors import OF_DISK, DiskError, explain_disk_errors
from rlfactory.run.folder import RunFolder, enough_space
from rlfactory.run.log_file import attach_log
from rlfactory.run.metrics import MetricsLog, read

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            FULL,
            r"the thing could not be written: No space left on device \(3.0 MiB needed, .* free\)",
        ),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "quota exceeded .*; make room; then type: "),
        (
            OSError(errno.EROFS, "Read-only file system"),
            "Read-only file system; check the disk of ",
        ),
        (OSError(errno.EIO, "Input/output error"), "Input/output error; check the disk of "),
        (OSError(errno.EFBIG, "File too large"), r"raise the limit on a file's size \(ulimit -f\)"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "No such file; check the disk of "),
        (SafetensorError("Error: I/O error: Disk full (os error 28)"), "Disk full .*make room"),
        (OSError("odd"), "odd; check the disk of "),
    ],
)
def test_the_message_says_what_failed_why_and_what_to_type(
    tmp_path: Path, error: Exception, said: str
) -> None:
    with (
        pytest.raises(DiskError, match=said) as ended,
        explain_disk_errors(tmp_path, "the thing", 3 * 2**20),
    ):
        raise error
    assert f"then type: rlfactory resume {tmp_path}" in str(ended.value)


def test_missing_room_is_named_with_both_numbers(tmp_path: Path) -> None:
    with (
        pytest.raises(DiskError, match=r"needed, .* free; make room"),
        explain_disk_errors(tmp_path, "the thing"),
    ):
        enough_space(tmp_path, 2**60)


def test_an_explained_error_is_not_explained_again(tmp_path: Path) -> None:
    with (
        pytest.raises(DiskError, match="^inner could not") as ended,
        explain_disk_errors(tmp_path, "outer"),
        explain_disk_errors(tmp_path, "inner"),
    ):
        raise FULL
    assert "outer" not in str(ended.value)


@pytest.mark.parametrize("error", [ValueError("no disk"), SafetensorError("no disk")])
def test_other_errors_pass_unchanged(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error), match="no disk"), explain_disk_errors(tmp_path, "the thing"):
        raise error


@pytest.mark.parametrize(
    ("error", "kind"),
    [(FULL, DiskError), (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), OSError)],
)
def test_around_a_whole_run_errors_of_a_disk_alone_are_explained(
    tmp_path: Path, error: OSError, kind: type[OSError]
) -> None:
    with (
        pytest.raises(kind) as ended,
        explain_disk_errors(tmp_path, "a file of the run", numbers=OF_DISK),
    ):
        raise error
    assert (ended.value is error) == (kind is OSError)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_safetensors_on_a_full_disk(small: Path) -> None:
    with (
        pytest.raises(DiskError, match="No space left on device"),
        explain_disk_errors(small, "the thing", 4 * 10**6),
    ):
        save_file({"a": torch.zeros(10**6)}, small / "a")


def test_no_half_line_stays_on_a_full_disk(small: Path) -> None:
    folder = RunFolder(small)
    with attach_log(folder):
        metrics, values = MetricsLog(folder.metrics), {f"long/{i}": i / 7 for i in range(1000)}

        def fill() -> None:
            for count in range(1000):
                metrics.log(count, values)

        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                fill()
            assert len(read(folder.metrics)) == metrics.lines > 0
            assert folder.metrics.read_bytes().endswith(b"}\n")


def test_a_log_on_a_full_disk_is_silent(small: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(small)
    with attach_log(folder):
        with pytest.raises(OSError, match="No space"):
            (small / "all").write_bytes(b"0" * 2**21)
        logging.getLogger("rlfactory").warning("x" * 10**5)
    assert "Traceback" not in capfd.readouterr().err


def test_an_evaluation_resumes_nothing_and_a_path_is_quoted(tmp_path: Path) -> None:
    for resumes, said in ((True, "resume '.*my run'"), (False, "check the disk of .*my run$")):
        with (
            pytest.raises(DiskError, match=said),
            explain_disk_errors(tmp_path / "my run", "scores", resumes=resumes),
        ):
            raise OSError(errno.EROFS, "Read-only file system")
