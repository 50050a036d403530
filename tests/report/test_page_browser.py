"""The page as a person meets it, in a headless Chromium."""

from itertools import pairwise

import pytest

from rlfactory.report.page import write_page

pytestmark = pytest.mark.slow  # Chromium starts anew for each

HARMLESS = ("data:", "file:")
PAPER = {False: "rgb(253, 253, 252)", True: "rgb(20, 22, 26)"}  # by dark
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
TIP = ".tip:not([hidden])"


@pytest.fixture
def path(report, tmp_path):
    return write_page(report, tmp_path)


def middle(page, selector: str = ".canvas") -> tuple[float, float]:
    """Where an element's middle is once it has been brought into the window."""
    element = page.locator(selector).first
    element.evaluate("e => e.scrollIntoView({block: 'center', behavior: 'instant'})")
    box = element.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def tip(page) -> str | None:
    shown = page.locator(TIP)
    return shown.inner_text() if shown.count() else None


def named(page, which: str = "th") -> list[str]:
    """The rows in the open tooltip."""
    return [text.strip() for text in page.locator(f"{TIP} {which}").all_inner_texts()]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_it_loads_alone_and_without_complaint(show, path, width, dark):
    page = show(path, width=width, dark=dark)
    assert page.requested
    assert [url for url in page.requested if not url.startswith(HARMLESS)] == []
    assert page.complaints == []
    assert page.title() == "One reward each, Stable Diffusion 3.5 M"
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(BACKGROUND) == PAPER[dark]


def test_wide_tables_scroll_in_their_own_box(show, path):
    box = show(path, width=390).locator(".scroll").first
    assert box.evaluate("b => b.scrollWidth > b.clientWidth")


def test_the_switch_turns_dark_into_light_and_back(show, path):
    page = show(path, dark=True)
    for dark in (False, True):
        page.click("#theme")
        assert page.evaluate(BACKGROUND) == PAPER[dark]
    page.click("#theme")
    page.reload()
    assert page.evaluate(BACKGROUND) == PAPER[False]


def test_the_pointer_shows_the_nearest_points_values(show, path, report):
    page = show(path)
    x, y = middle(page)
    page.mouse.move(x, y)
    shown = tip(page)
    iteration = float(shown.split("\n")[0].removeprefix("Iteration "))
    for curve in report.curves[:2]:
        i = curve.x.index(iteration)
        values = [f"{v[i]:.3f}" for v in (curve.mean, curve.low, curve.high)]
        assert f"{values[0]}[{values[1]}, {values[2]}]" in shown.replace(" [", "[")
    page.mouse.move(x, 2)
    assert tip(page) is None


def test_the_crosshair_and_the_dots_are_on_the_lines(show, path):
    page = show(path)
    page.mouse.move(*middle(page))
    end = """e => { const b = e.getBoundingClientRect();
      return [b.x + b.width / 2, b.y + b.height / 2] }"""
    x, y = page.locator(".marks .chip").first.evaluate(end)
    gap = """(path, [x, y]) => Math.min(...[...Array(500).keys()].map(i => {
      const at = path.getPointAtLength(i / 499 * path.getTotalLength());
      const on = new DOMPoint(at.x, at.y).matrixTransform(path.getScreenCTM());
      return Math.hypot(on.x - x, on.y - y); }))"""
    lines = page.locator(".canvas >> nth=0 >> [data-row] > path").all()
    assert min(line.evaluate(gap, [x, y]) for line in lines) < 1.5
    assert abs(page.locator(".marks .cross").evaluate(end)[0] - x) < 1.5


def test_arrow_keys_read_a_plot_to_its_end(show, path, report):
    page = show(path)
    page.focus(".canvas")
    page.keyboard.press("ArrowRight")
    assert tip(page).startswith("Iteration 0")
    page.keyboard.press("End")
    assert tip(page).startswith("Iteration 120")
    assert f"{report.curves[0].mean[-1]:.3f}" in tip(page)
    page.keyboard.press("Escape")
    assert tip(page) is None


@pytest.mark.parametrize("script", [True, False])
def test_the_legend_takes_a_row_out_of_plots_and_tooltips(show, path, script):
    page = show(path, script=script)
    first, others = page.locator('.plots [data-row="0"]'), page.locator('.plots [data-row="1"]')
    assert first.count() == 4  # a line and a band in two plots
    page.locator(".legend input").first.uncheck()
    assert not any(part.is_visible() for part in first.all())
    assert all(part.is_visible() for part in others.all())
    if script:
        page.mouse.move(*middle(page))
        assert named(page) == ["Flow-GRPO, all steps"]
    page.locator(".legend input").first.check()
    assert first.first.is_visible()
    if script:
        page.mouse.move(0, 0)
        page.mouse.move(*middle(page))
        assert named(page) == ["V-GRPO", "Flow-GRPO, all steps"]


@pytest.mark.parametrize("row", [0, 1])
def test_the_line_under_the_pointer_is_the_one_that_stands_out(show, path, row):
    page = show(path)
    middle(page)
    end = """line => {
      const end = line.getPointAtLength(line.getTotalLength());
      const at = new DOMPoint(end.x, end.y).matrixTransform(line.getScreenCTM());
      return [at.x, at.y] }"""
    line = page.locator(f'.canvas >> nth=0 >> [data-row="{row}"] > path').last
    page.mouse.move(*line.evaluate(end))
    assert named(page, "tr.near th") == [["V-GRPO", "Flow-GRPO, all steps"][row]]


def test_a_finger_opens_a_tooltip_and_closes_it_elsewhere(show, path):
    page = show(path, width=390, touch=True)
    middle(page)
    page.locator(".canvas").first.tap()
    assert tip(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator("h2#curves").tap()
    assert tip(page) is None


def test_an_image_opens_turns_and_closes_with_escape(show, path):
    page = show(path)
    lightbox = page.locator("#lightbox")
    assert not lightbox.is_visible()
    page.locator(".enlarge").first.click()
    assert lightbox.is_visible()
    assert "grid of the last evaluation" in lightbox.locator("p").inner_text()
    page.keyboard.press("ArrowRight")
    assert "strip of the last evaluation" in lightbox.locator("p").inner_text()
    page.locator("#lightbox .back").click()
    assert "grid of the last evaluation" in lightbox.locator("p").inner_text()
    page.keyboard.press("Escape")
    assert not lightbox.is_visible()
    assert page.evaluate("document.activeElement.className") == "enlarge"


def test_without_script_tables_images_and_curves_are_there(show, path):
    page = show(path, script=False)
    text = page.locator("body").inner_text()
    assert "0.80± 0.03" in text.replace("\n", "").replace("0.80 ", "0.80")
    sizes = [image.bounding_box() for image in page.locator(".enlarge img").all()]
    assert len([size for size in sizes if size["width"] > 99]) == 2
    assert page.locator(".canvas [data-row] > path").count() == 5


def test_words_are_told_from_the_paper_by_enough_contrast(show, path):
    script = """
    (() => {
      const light = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255)
        .map(x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
        return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
      const paper = light(getComputedStyle(document.body).backgroundColor);
      const words = [...document.querySelectorAll('main *, header *')]
        .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
      return Math.min(...words.map(e => { const s = getComputedStyle(e);
        const own = light(e.tagName === 'text' ? s.fill : s.color);
        return (Math.max(own, paper) + .05) / (Math.min(own, paper) + .05); }));
    })()"""
    for dark in (False, True):
        assert show(path, dark=dark).evaluate(script) >= 4.5


def test_headings_go_down_one_at_a_time(show, path):
    headings = "[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])"
    levels = show(path).evaluate(headings)
    assert levels[0] == 1
    assert 1 not in levels[1:]
    assert all(level <= before + 1 for before, level in pairwise(levels))


def test_it_prints(show, path, tmp_path):
    page = show(path)
    page.emulate_media(media="print")
    page.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    assert not page.locator("nav").is_visible()
