"""The table of waits and pageable copies: `budgets.yaml`.

python tests/device/wait_budgets.py                   # shows what differs from the table
python tests/device/wait_budgets.py --write [CASE...] # writes the table anew
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).with_name("budgets.yaml")
KINDS = ("waits", "pageable")
UNITS = ("step", "old log-probabilities", "micro_batch", "update", "rollout", "score", "iteration")
"""Those that are counted; rewards and files have threads of their own, for which nobody waits."""
TITLE = """\
# Waits of the host for the device, and copies from or to pageable memory (each of them waits too),
# on the pretended device, for each unit of the second iteration. Written by
#     python tests/device/wait_budgets.py --write
# Numbers may only fall. `step` is a sampling step or a token; `rollout` is what else sampling does.
"""


def read_table() -> dict[str, Any]:
    """Of each case its `words` and, by unit, its `waits` and `pageable` copies."""
    table: dict[str, Any] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return table


def counts_of(measured: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """`waits` and `pageable` by unit."""
    counts = measured["counts"]
    return {kind: {unit: counts[unit][kind] for unit in UNITS if unit in counts} for kind in KINDS}


def differences(case: Mapping[str, Any], measured: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Lines on what differs from the table, with the places of what rose; whether any rose."""
    lines, rose = [], False
    for kind, found in counts_of(measured).items():
        for unit in dict.fromkeys([*found, *case[kind]]):
            now, before = found.get(unit, 0), case[kind].get(unit, 0)
            if now == before:
                continue
            lines.append(f"{kind} per {unit}: {now:g}, in the table {before:g}")
            if now > before:
                rose = True
                lines += [f"    {row}" for row in places(measured, unit, kind)]
    return lines, rose


def places(measured: Mapping[str, Any], unit: str, kind: str = "waits") -> list[str]:
    """Where the waits or pageable copies of a unit are."""
    each = measured["units"].get(unit, 1)
    rows = [row for row in measured["places"] if row[0] == unit]
    return [
        f"{count / each:g} x {place}: {what}"
        for _, place, what, count in rows
        if kind == "waits" or "pageable" in what
    ]


def write_table(table: Mapping[str, Any]) -> None:
    """Write the table with a line for each kind."""
    lines = [TITLE]
    for name, case in table.items():
        lines += [f"{name}:", f"  words: {case['words']}"]
        for kind in KINDS:
            numbers = ", ".join(f"{unit}: {value:g}" for unit, value in case[kind].items())
            lines.append(f"  {kind}: {{{numbers}}}")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the table anew")
    parser.add_argument("cases", nargs="*", help="default: all")
    given = parser.parse_args(argv)
    from pretended.client import Pretended

    table, device = read_table(), Pretended()
    for name in given.cases or list(table):
        measured = device.measure(*table[name]["words"].split())
        lines, _ = differences({"waits": {}, "pageable": {}, **table[name]}, measured)
        print(name, *lines, sep="\n  ", flush=True)
        table[name] |= counts_of(measured)
        if given.write:
            write_table(table)
    device.close()


if __name__ == "__main__":
    main()
