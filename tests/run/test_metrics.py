import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import pytest

from rlfactory.run.loggers import NoLogger
from rlfactory.run.metrics import MetricsLog, keep_lines, read
from rlfactory.utils.data_files import FileError


class Recorder(NoLogger):
    def __init__(self) -> None:
        self.seen: list[tuple[int, dict[str, float]]] = []

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        self.seen.append((iteration, dict(values)))


def test_what_is_logged_is_read_back_and_forwarded(tmp_path: Path) -> None:
    recorders = [Recorder(), Recorder()]
    log = MetricsLog(tmp_path / "metrics.jsonl", recorders)
    log.log(0, {"loss/policy": 0.25, "grad/norm": 3})
    log.log(1, {"loss/policy": 1 / 3})
    first, second = read(tmp_path / "metrics.jsonl")
    assert list(first) == ["iteration", "time", "loss/policy", "grad/norm"]
    assert second["loss/policy"] == 1 / 3
    assert second["iteration"] == 1
    for recorder in recorders:
        assert recorder.seen == [
            (0, {"loss/policy": 0.25, "grad/norm": 3}),
            (1, {"loss/policy": 1 / 3}),
        ]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_null(tmp_path: Path, value: float) -> None:
    MetricsLog(tmp_path / "m").log(0, {"x": value})
    line = (tmp_path / "m").read_text()
    assert '"x": null' in line
    assert json.loads(line)["x"] is None


def test_every_line_is_on_disk_at_once(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "m")
    for i in range(3):
        log.log(i, {})
        assert len(read(tmp_path / "m")) == i + 1


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_torn_last_line_is_dropped_and_the_next_stands_alone(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "m"
    MetricsLog(path).log(0, {"x": 1})
    MetricsLog(path).log(1, {"x": 2})
    path.write_bytes(path.read_bytes()[:-cut])
    assert [r["iteration"] for r in read(path)] == [0]
    MetricsLog(path).log(1, {"x": 3})
    assert [r.get("x") for r in read(path)] == [1, 3]


@pytest.mark.parametrize("wrote", [0, 1, 17])
def test_a_line_that_can_not_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrote: int
) -> None:
    log = MetricsLog(tmp_path / "m")
    log.log(0, {"x": 1})
    before, opened = log.path.read_bytes(), Path.open

    class Full:
        """A file that takes a few bytes more."""

        def __init__(self, file: IO[bytes]) -> None:
            self.file, self.left = file, wrote

        def write(self, data: bytes) -> int:
            if not self.left:
                raise OSError("No space left on device")
            written, self.left = self.file.write(data[: self.left]), 0
            return written

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", lambda *a, **k: Full(opened(*a, **k)))
        with pytest.raises(OSError, match="No space"):
            log.log(1, {"x": 2})
    assert log.path.read_bytes() == before
    log.log(1, {"x": 2})
    assert [r["x"] for r in read(log.path)] == [1, 2]


def test_damage_elsewhere_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m").write_text('{"iteration": 0}\nnoise\n{"iteration": 2}\n')
    with pytest.raises(ValueError, match="line 2"):
        read(tmp_path / "m")


def test_time_goes_on_where_the_file_stopped(tmp_path: Path) -> None:
    (tmp_path / "m").write_text('{"iteration": 0, "time": 100.0}\n')
    log = MetricsLog(tmp_path / "m")
    assert 100 <= log.elapsed < 110


@pytest.mark.parametrize(("asked", "kept"), [(0, 0), (2, 2), (9, 3)])
def test_a_file_is_cut_after_so_many_lines(tmp_path: Path, asked: int, kept: int) -> None:
    log = MetricsLog(tmp_path / "m")
    for i in range(3):
        log.log(i, {})
    assert log.lines == 3
    assert keep_lines(tmp_path / "m", asked) == kept
    assert [r["iteration"] for r in read(tmp_path / "m")] == list(range(kept))
    assert MetricsLog(tmp_path / "m").lines == kept


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"[]", "is \\[\\], not a mapping"),
        (b"{}", "iteration is missing"),
        (b'{"iteration": 1e999}', "iteration is inf"),
        (b'{"iteration": "1"}', "iteration is '1'"),
        (b'{"iteration": 1, "a": "text"}', "a is 'text', not a number"),
        (b'{"iteration": 1, "a": [1]}', "not a number"),
        (b'{"iteration": 1, "\\u001b[2J": true}', "x1b"),
        (b"{", "line 2 is not JSON"),
        (b"[" * 10_000, "levels inside each other"),
        (b"\xff", "line 2 is not UTF-8"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"iteration": 0}\n' + line + b"\n")
    with pytest.raises(FileError, match=said) as caught:
        read(path)
    assert "line 2" in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_log_goes_on_after_a_line_without_a_time(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"iteration": 0}\n')
    assert MetricsLog(path).lines == 1


def test_no_lines_are_cut_through_a_link(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("first\nsecond\n")
    (tmp_path / "metrics.jsonl").symlink_to(mine)
    with pytest.raises(FileError, match="is a link, through which a run would write"):
        keep_lines(tmp_path / "metrics.jsonl", 1)
    assert mine.read_text() == "first\nsecond\n"


@pytest.mark.parametrize("there", [True, False])
def test_no_line_is_written_through_a_link(tmp_path: Path, there: bool) -> None:
    mine, path = tmp_path / "mine", tmp_path / "metrics.jsonl"
    if there:
        mine.write_text("torn")
    path.symlink_to(mine)
    for begin in (lambda: MetricsLog(path), lambda: keep_lines(path, 1)):
        with pytest.raises(FileError, match="is a link, through which a run would write"):
            begin()
    assert mine.exists() is there
