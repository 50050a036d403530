"""SLURM's compact lists of hosts, expanded without `scontrol`, which a container may lack."""

import re
from collections.abc import Iterator

_HOST = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
"""A name between commas; commas in brackets belong to it."""
_BRACKET = re.compile(r"([^\[]*)\[([^\]]*)\](.*)")


def expand_hosts(text: str) -> list[str]:
    """The hosts of a list such as `node[01-04,07],gpu3`, in its order; `node01`, `node02`, ...

    A name may have several brackets, `rack[0-1]n[1-2]`; the last one varies fastest.
    """
    return [host for part in _HOST.findall(text) for host in _expand(part.strip())]


def _expand(name: str) -> Iterator[str]:
    match = _BRACKET.fullmatch(name)
    if match is None:
        yield name
        return
    before, choices, after = match.groups()
    ends = [*_expand(after)]
    for choice in choices.split(","):
        for number in _numbers(choice.strip()):
            yield from (f"{before}{number}{end}" for end in ends)


def _numbers(choice: str) -> Iterator[str]:
    """The numbers of `07` or `01-04`, with the leading zeros of the first."""
    first, dash, last = choice.partition("-")
    if not dash:
        yield first
        return
    for number in range(int(first), int(last) + 1):
        yield f"{number:0{len(first)}d}"
