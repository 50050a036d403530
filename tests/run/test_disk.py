"""A disk that is full, read-only or gone."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from rlfactory.run import disk
from rlfactory.run.disk import DiskError, Patience
from rlfactory.run.folder import RunFolder, enough_space
from rlfactory.run.metrics import MetricsLog, read


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(disk, "time", made)
    return made


def failing(times: float, error: Exception) -> Callable[[], None]:
    calls: list[int] = []

    def write() -> None:
        calls.append(1)
        if len(calls) <= times:
            raise error

    return write


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            FULL,
            r"the thing could not be written: No space left on device \(3.0 MiB needed, .* free\)",
        ),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "quota exceeded .*; make room; then type: "),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system; see to "),
        (OSError(errno.EIO, "Input/output error"), "Input/output error; see to "),
        (FileNotFoundError(errno.ENOENT, "No such file"), "No such file; see to "),
        (SafetensorError("Error: I/O error: Disk full (os error 28)"), "Disk full .*make room"),
        (OSError("odd"), "odd; see to "),
    ],
)
def test_without_patience_it_ends_at_once_with_one_message(
    tmp_path: Path, clock: Clock, error: Exception, said: str
) -> None:
    shown: list[str] = []
    with pytest.raises(DiskError, match=said) as ended:
        Patience(tmp_path, 0, shown.append).over(failing(1, error), "the thing", 3 * 2**20)
    assert f"then type: rlfactory resume {tmp_path}" in str(ended.value)
    assert (shown, clock.slept) == ([], [])


def test_room_that_is_missing_is_told_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match=r"needed, .* free; make room"):
        Patience(tmp_path).over(lambda: enough_space(tmp_path, 2**60), "the thing")


@pytest.mark.parametrize("error", [ValueError("no disk"), SafetensorError("no disk")])
def test_what_is_no_disk_s_fault_is_not_waited_for(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error), match="no disk"):
        Patience(tmp_path, 60).over(failing(1, error), "the thing")


def test_it_is_told_once_and_tried_until_it_works(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    shown: list[str] = []
    Patience(tmp_path, 600, shown.append).over(failing(5, FULL), "the thing")
    assert len(shown) == 2
    assert "trying again for 10 minutes" in shown[0]
    assert shown[1] == "the thing could be written now"
    assert [record.getMessage() for record in caplog.records] == shown
    assert clock.now == pytest.approx(1 + 2 + 4 + 8 + 16), "longer each time"


def test_patience_ends(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(DiskError, match="No space left"):
        Patience(tmp_path, 300, lambda said: None).over(failing(10**6, FULL), "the thing")
    assert clock.now == pytest.approx(300)


def test_a_stop_ends_it(tmp_path: Path, clock: Clock) -> None:
    patience = Patience(tmp_path, 300, lambda said: None, lambda: clock.now > 5)
    with pytest.raises(DiskError):
        patience.over(failing(10**6, FULL), "the thing")
    assert 5 < clock.now < 5.2


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
    with pytest.raises(DiskError, match="No space left on device"):
        Patience(small).over(
            lambda: save_file({"a": torch.zeros(10**6)}, small / "a"), "the thing", 4 * 10**6
        )


def test_no_half_line_stays_on_a_full_disk(small: Path) -> None:
    folder = RunFolder(small)
    with folder.attach_log():
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
    with folder.attach_log():
        with pytest.raises(OSError, match="No space"):
            (small / "all").write_bytes(b"0" * 2**21)
        disk.log.warning("x" * 10**5)
    assert "Traceback" not in capfd.readouterr().err
