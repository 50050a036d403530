"""What other libraries call the options of this one: one table, for messages, docs and imports.

docs/reference/names.md prints it. Libraries that use a name for the same thing share its row.
"""

from collections.abc import Iterator, Mapping
from functools import cache

from rlfactory.config.peers.learning_names import BATCHES, LOSSES, OPTIMISATION
from rlfactory.config.peers.name import Name
from rlfactory.config.peers.running_names import HARDWARE, RUNS
from rlfactory.config.peers.sampling_names import DATA, MODELS, SAMPLING

TABLES: Mapping[str, tuple[Name, ...]] = {
    "Optimisation and length of a run": OPTIMISATION,
    "Batches": BATCHES,
    "Sampling": SAMPLING,
    "Loss and advantages": LOSSES,
    "Model": MODELS,
    "Prompts and rewards": DATA,
    "Hardware and precision": HARDWARE,
    "Output": RUNS,
}


@cache
def _by_name() -> Mapping[str, Name]:
    return {row.name: row for rows in TABLES.values() for row in rows}


def find(key: str) -> Name | None:
    """The row of a name, or of the last component of a dotted one."""
    names = _by_name()
    return names.get(key) or names.get(key.rpartition(".")[2])


def rows_of(*peers: str) -> Iterator[Name]:
    """The rows of the names that any of these libraries uses."""
    for rows in TABLES.values():
        yield from (row for row in rows if {*peers} & {*row.peers})
