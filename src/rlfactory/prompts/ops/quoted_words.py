"""The word that a prompt quotes, which `reward=ocr` looks for in the image. Imports no torch."""


def quoted_word(prompt: str) -> str | None:
    """The text between a prompt's first two straight double quotes; None without two."""
    parts = prompt.split('"', 2)
    return parts[1] if len(parts) == 3 else None


def quotation_problem(prompt: str) -> str | None:
    """The reason why a prompt names no word; None if it names one."""
    target = quoted_word(prompt)
    if target is None:
        return f"the prompt {prompt!r} has no text in double quotes"
    return None if target.strip() else f"the prompt {prompt!r} quotes nothing"
