"""HTML that can't be broken by what stands in it: all text is escaped, only `tag` makes markup."""

from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *content: str | None, **attributes: str | float | bool | None) -> Markup:
    """An element. `class_` is the attribute `class`, `data_row` is `data-row`.

    True stands for an attribute without a value; None and False leave it out.
    """
    words = [name, *_attributes(attributes)]
    return Markup(f"<{' '.join(words)}>{join(*content)}</{name}>")


def void(name: str, **attributes: str | float | bool | None) -> Markup:
    """An element that has no end, as `img`."""
    return Markup(f"<{' '.join([name, *_attributes(attributes)])}>")


def join(*content: str | None) -> Markup:
    """One after the other; None is nothing."""
    parts = [part for part in content if part is not None]
    return Markup("".join(p if isinstance(p, Markup) else escape(p, quote=False) for p in parts))


def _attributes(attributes: dict[str, str | float | bool | None]) -> list[str]:
    words = []
    for key, value in attributes.items():
        name = key.removesuffix("_").replace("_", "-")
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            words.append(f'{name}="{escape(str(value))}"')
    return words
