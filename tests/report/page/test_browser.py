"""The page as a person meets it, in a headless Chromium."""

from itertools import pairwise

import pytest

from rlfactory.report.page import write_page

HARMLESS = ("data:", "file:")


@pytest.fixture
def path(report, tmp_path):
    return write_page(report, tmp_path)


def requests(browser) -> list[str]:
    asked = [e for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    return [event["params"]["request"]["url"] for event in asked]


def tip(browser) -> str | None:
    return browser.run(
        "[...document.querySelectorAll('.tip')].find(t => !t.hidden)?.innerText ?? null"
    )


def named(browser, which: str = "th") -> list[str]:
    """The rows in the open tooltip."""
    cells = f"document.querySelectorAll('.tip:not([hidden]) {which}')"
    return browser.run(f"[...{cells}].map(cell => cell.innerText.trim())")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_it_loads_alone_and_without_complaint(browser, path, width, dark):
    browser.open(path, width=width, dark=dark)
    assert [url for url in requests(browser) if not url.startswith(HARMLESS)] == []
    assert [
        e for e in browser.events if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
    ] == []
    assert browser.run("document.title") == "One reward each, Stable Diffusion 3.5 M"
    assert browser.run("document.documentElement.scrollWidth") == width
    shade = browser.run("getComputedStyle(document.body).backgroundColor")
    assert shade == ("rgb(20, 22, 26)" if dark else "rgb(253, 253, 252)")


def test_wide_tables_scroll_in_their_own_box(browser, path):
    browser.open(path, width=390)
    assert browser.run("(b => b.scrollWidth > b.clientWidth)(document.querySelector('.scroll'))")


def test_the_switch_turns_dark_into_light_and_back(browser, path):
    browser.open(path, dark=True)
    for shade in ("rgb(253, 253, 252)", "rgb(20, 22, 26)"):
        browser.click("#theme")
        assert browser.run("getComputedStyle(document.body).backgroundColor") == shade


def test_the_pointer_shows_the_nearest_points_values(browser, path, report):
    browser.open(path)
    x, y = browser.middle(".canvas")
    browser.point(x, y)
    shown = tip(browser)
    iteration = float(shown.split("\n")[0].removeprefix("Iteration "))
    for curve in report.curves[:2]:
        i = curve.x.index(iteration)
        values = [f"{v[i]:.3f}" for v in (curve.mean, curve.low, curve.high)]
        assert f"{values[0]}[{values[1]}, {values[2]}]" in shown.replace(" [", "[")
    browser.point(x, 2)
    assert tip(browser) is None


def test_arrow_keys_read_a_plot_to_its_end(browser, path, report):
    browser.open(path)
    browser.run("document.querySelector('.canvas').focus()")
    browser.key("ArrowRight")
    assert tip(browser).startswith("Iteration 0")
    browser.key("End")
    assert tip(browser).startswith("Iteration 120")
    assert f"{report.curves[0].mean[-1]:.3f}" in tip(browser)
    browser.key("Escape")
    assert tip(browser) is None


def test_the_legend_takes_a_row_out_of_plots_and_tooltips(browser, path):
    browser.open(path)
    browser.click(".legend button")
    off = "[...document.querySelectorAll('.plots .off')].map(e => e.dataset.row)"
    assert set(browser.run(off)) == {"0"}
    browser.point(*browser.middle(".canvas"))
    assert named(browser) == ["Flow-GRPO, all steps"]
    browser.click(".legend button")
    assert browser.run(off) == []
    browser.point(*browser.middle(".canvas"))
    assert named(browser) == ["V-GRPO", "Flow-GRPO, all steps"]


@pytest.mark.parametrize("row", [0, 1])
def test_the_line_under_the_pointer_is_the_one_that_stands_out(browser, path, row):
    browser.open(path)
    browser.middle(".canvas")
    end = f"""(line => {{
      const end = line.getPointAtLength(line.getTotalLength());
      const at = new DOMPoint(end.x, end.y).matrixTransform(line.getScreenCTM());
      return [at.x, at.y] }})(document.querySelectorAll('.canvas .series .line')[{row}])"""
    browser.point(*browser.run(end))
    assert named(browser, "tr.near th") == [["V-GRPO", "Flow-GRPO, all steps"][row]]


def test_a_finger_opens_a_tooltip_and_closes_it_elsewhere(browser, path):
    browser.open(path, width=390)
    x, y = browser.middle(".canvas")
    kind = f"{{pointerType: 'touch', bubbles: true, clientX: {x}, clientY: {y}}}"
    touch = f"new PointerEvent('pointerdown', {kind})"
    browser.run(f"document.querySelector('.canvas').dispatchEvent({touch})")
    assert tip(browser)
    assert browser.run("document.documentElement.scrollWidth") == 390
    browser.run(f"document.querySelector('h1').dispatchEvent({touch})")
    assert tip(browser) is None


def test_a_picture_opens_turns_and_closes_with_escape(browser, path):
    browser.open(path)
    is_open = "document.querySelector('#lightbox').open"
    caption = "document.querySelector('#lightbox p').innerText"
    assert browser.run(is_open) is False
    browser.click(".enlarge")
    assert browser.run(is_open) is True
    assert "grid of the last evaluation" in browser.run(caption)
    browser.key("ArrowRight")
    assert "strip of the last evaluation" in browser.run(caption)
    browser.key("Escape")
    assert browser.run(is_open) is False
    assert browser.run("document.activeElement.className") == "enlarge"


def test_without_script_tables_pictures_and_curves_are_there(browser, path):
    browser.open(path, script=False)
    text = browser.run("document.body.innerText")
    assert "0.80± 0.03" in text.replace("\n", "").replace("0.80 ", "0.80")
    loaded = "[...document.images].filter(i => i.naturalWidth > 1 && i.offsetWidth > 99).length"
    assert browser.run(loaded) == 2
    assert browser.run("document.querySelectorAll('.canvas .line').length") == 5


def test_words_are_told_from_the_paper_by_enough_contrast(browser, path):
    script = """
    (() => {
      const light = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255)
        .map(x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
        return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
      const paper = light(getComputedStyle(document.body).backgroundColor);
      const words = [...document.querySelectorAll('main *, header *')]
        .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
      return Math.min(...words.map(e => { const own = light(getComputedStyle(e).color);
        return (Math.max(own, paper) + .05) / (Math.min(own, paper) + .05); }));
    })()"""
    for dark in (False, True):
        browser.open(path, dark=dark)
        assert browser.run(script) >= 4.5


def test_headings_go_down_one_at_a_time(browser, path):
    browser.open(path)
    levels = browser.run("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert 1 not in levels[1:]
    assert all(level <= before + 1 for before, level in pairwise(levels))


def test_it_prints(browser, path, tmp_path):
    browser.open(path)
    browser.printed(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
