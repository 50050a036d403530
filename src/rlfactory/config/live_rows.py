"""How the plan names a choice whose place a live object takes."""

from typing import Any

from rlfactory.utils.live_objects import references_in


def described_choice(choice: str, node: Any) -> str:
    """An option, or what of its group is in memory.

    Args:
        choice: the option's name, or that of the object.
        node: the group's values, which may refer to live objects.
    """
    names = references_in(node)
    if "model" in names:
        return f"in memory, with the settings of {choice}"
    if parts := [name.partition(".")[2] for name in names if "." in name]:
        return f"{choice}: {', '.join(parts)} in memory"
    return f"{choice}, in memory" if names else choice
