"""Text of others in Markdown is neither HTML nor a link."""

import pytest

from rlfactory.utils.text import plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>x</script>", r"\<script>x\</script>"),
        ("[x](javascript:alert(1))", r"\[x\](javascript:alert(1))"),
        ("![x](http://there/pixel.png)", r"!\[x\](http://there/pixel.png)"),
        ("a\n\n# head | cell", r"a # head \| cell"),
        ("\x00 \x1b[2J \u202eright", r"\\x00 \\x1b\[2J \\u202eright"),
    ],
)
def test_marks_are_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown
