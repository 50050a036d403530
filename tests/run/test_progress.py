import io
import re

import pytest
from rich.text import Text

from rlfactory.run import progress
from rlfactory.run import progress as module
from rlfactory.run.progress import NotebookDisplay, Progress, as_html

METRICS = {
    "reward/shapes/mean": 0.7123,
    "kl/reference": 0.0041,
    "ratio/clip_fraction": 0.031,
    "time/sample": 2.1,
    "time/score": 0.2,
    "time/learn": 1.8,
    "time/iteration": 5.0,
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


def work(progress: Progress, iterations: int) -> None:
    with progress:
        progress.phase("evaluate", total=256)
        progress.advance(256)
        for i in range(iterations):
            for phase, total in (("sample", 96), ("score", 96), ("learn", 2)):
                progress.phase(phase, total=total)
                progress.advance(total // 2)
                progress.advance(total // 2)
            progress.iteration(i, METRICS, "shapes")
        progress.say("farewell")


def test_elsewhere_than_on_a_terminal_lines_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    work(Progress(12, stream=stream), 3)
    text = stream.getvalue()
    assert re.search(r"[^\x20-\x7e\n]", text) is None
    lines = text.splitlines()
    assert [line.split()[0] for line in lines] == ["evaluate", *["iteration"] * 3, "farewell"]
    for part in ("2/12", "shapes 0.712", "KL 0.0041", "clip 3.1%", "sample 2.1s", "0:50 left"):
        assert part in lines[2]


def test_a_long_phase_prints_lines_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    progress = Progress(9, stream=stream)
    progress.phase("evaluate", total=320)
    for _ in range(320):
        now[0] += 1.0
        progress.advance(0)  # a pass of the network
        progress.advance(1)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "evaluate 320 samples"
    assert lines[1] == "evaluate 29/320 samples, 0:30 elapsed, 5:01 left"
    assert len(lines) == 1 + 10, "one in 30 seconds"


def test_the_lines_of_a_phase_of_hours_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    progress = Progress(9, stream=stream)
    progress.phase("sample", total=96)
    for _ in range(96):
        now[0] += 120.0
        progress.advance(1)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "iteration 1/9: sample 3/96 samples, 6:00 elapsed, 3:06:00 left"
    assert len(lines) == 31, "one in five minutes at most, each after a sample"


def test_what_was_not_measured_is_not_shown() -> None:
    stream = io.StringIO()
    with Progress(2, stream=stream) as progress:
        progress.iteration(0, {"reward/x/mean": 2.0}, "x")
    assert "x 2.000" in stream.getvalue()
    assert "KL" not in stream.getvalue()
    assert "clip" not in stream.getvalue()


def test_a_terminal_gets_live_lines_within_its_width(terminal: Terminal) -> None:
    work(Progress(3, stream=terminal), 3)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    rows = re.split(r"[\r\n]+", text)
    assert max(map(len, rows)) <= 80
    assert any(re.match(r"sample +\S+ +\d+/96 +iteration 3/3 ", row) for row in rows)
    assert any("shapes 0.712  KL 0.0041  clip 3.1%" in row for row in rows)
    assert sum(row.startswith("iteration") for row in rows) == 0
    assert "\x1b[?25h" in terminal.getvalue(), "the cursor is shown again"


def test_a_dumb_terminal_gets_plain_lines(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    work(Progress(1, stream=terminal), 1)
    assert "\x1b" not in terminal.getvalue()
    assert terminal.getvalue().startswith("evaluate 256 samples\niteration 1/1  shapes")


def test_an_exception_passes_and_frees_the_terminal(terminal: Terminal) -> None:
    with pytest.raises(KeyboardInterrupt), Progress(1, stream=terminal):
        raise KeyboardInterrupt
    assert "\x1b[?25h" in terminal.getvalue()


def test_what_remains_leaves_evaluations_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    progress = Progress(10, stream=io.StringIO())
    assert progress.remaining != progress.remaining, "NaN before the first iteration"
    for i in range(4):
        progress.phase("evaluate", total=1)
        now[0] += 100
        progress.phase("sample", total=1)
        now[0] += 3
        progress.iteration(i, {}, "x")
    assert progress.remaining == pytest.approx(6 * 3)


def test_a_resumed_run_counts_on(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress(10, stream=io.StringIO())
    progress.iteration(7, METRICS, "shapes")
    assert progress.remaining == pytest.approx(10)


def test_advance_does_not_overrun() -> None:
    progress = Progress(1, stream=io.StringIO())
    progress.phase("sample", total=3)
    progress.advance(5)
    assert progress._done == 3


def test_updates_are_throttled_and_the_last_state_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    now = [10.0]
    monkeypatch.setattr(progress, "show_html", lambda html: shown.append(html))
    monkeypatch.setattr(progress, "replace_html", lambda _, html: shown.append(html))
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    states = iter("abcd")
    display = NotebookDisplay(lambda: Text(next(states)))
    display.start()
    for now[0] in (10.0, 10.1, 10.4, 10.7):  # the second and third come too soon
        display.refresh()
    display.stop()
    assert len(shown) == 4
    assert all(letter in html for html, letter in zip(shown, "abcd", strict=True))


def test_text_is_escaped_and_keeps_its_style(monkeypatch: pytest.MonkeyPatch) -> None:
    # rich displays what it prints in a kernel, besides recording it
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *_: pytest.fail("displayed"))
    html = as_html(Text("<b> & c", style="bold"))
    assert "&lt;b&gt; &amp; c" in html
    assert "font-weight: bold" in html
