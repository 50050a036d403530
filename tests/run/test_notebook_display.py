"""The live display of a notebook, without a browser."""

import pytest
from rich.text import Text

from rlfactory.run import notebook_display
from rlfactory.run.notebook_display import NotebookDisplay, as_html


def test_updates_are_throttled_and_the_last_state_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    now = [10.0]
    monkeypatch.setattr(notebook_display, "show_html", lambda html: shown.append(html))
    monkeypatch.setattr(notebook_display, "replace_html", lambda _, html: shown.append(html))
    monkeypatch.setattr(notebook_display.time, "monotonic", lambda: now[0])
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
