"""Tokens as people can read them in a figure."""

from typing import Any

_SPACE, _LAST_DRAWN = "␣", 0x24F  # the fonts at hand draw Latin letters
END = "(end)"
_ESCAPES = {"\n": "\\n", "\t": "\\t", " ": _SPACE}


def token_name(tokenizer: Any, token: int) -> str:
    """A token with its spaces shown, what can't be drawn as its number in Unicode.

    Half a letter has no text, and goes by its name in the vocabulary.
    """
    text: str = tokenizer.decode([token])
    if not text or "\N{REPLACEMENT CHARACTER}" in text:
        text = str(tokenizer.convert_ids_to_tokens(token))
    if token == tokenizer.eos_token_id:
        return END
    return "".join(_drawn(character) for character in text)


def _drawn(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    plain = character.isprintable() and ord(character) <= _LAST_DRAWN
    return character if plain else f"\\u{ord(character):04x}"
