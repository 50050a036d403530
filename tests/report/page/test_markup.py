"""Text stays text, whatever is in it."""

from rlfactory.report.page.markup import join, tag, void


def test_text_is_escaped_and_markup_is_not():
    assert tag("p", "a < b & c", tag("b", "<i>")) == "<p>a &lt; b &amp; c<b>&lt;i&gt;</b></p>"


def test_an_attribute_can_not_end_early():
    assert void("img", alt='" onerror="x') == '<img alt="&quot; onerror=&quot;x">'


def test_names_and_kinds_of_attributes():
    made = tag("td", class_="x", data_row=3, hidden=True, title=None, open=False)
    assert made == '<td class="x" data-row="3" hidden></td>'


def test_nothing_is_left_out():
    assert join("a", None, "b") == "ab"
