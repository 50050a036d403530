"""The reference of the configuration: a page for the root's keys and one for each group.

Keys, defaults and comments are read from conf/, types from the annotations that `rlfactory check`
checks values against. The site's build calls `pages`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config.key_reference import KeyReference, file_reference
from rlfactory.config.options import first_comment, options
from rlfactory.config.schema.root import GROUPS

ROOT = Path(__file__).parents[2]
CONF, DOCS = ROOT / "conf", ROOT / "docs"


def companions(document: Mapping[str, Any]) -> list[str]:
    """The options of other groups that a file selects: `algo=nft`."""
    selected = []
    for entry in document.get("defaults") or []:
        if isinstance(entry, Mapping):
            for key, value in entry.items():
                group = str(key).removeprefix("override ").removeprefix("/")
                if group in GROUPS:
                    selected.append(f"{group}={value}")
    return selected


def table(keys: Mapping[str, KeyReference]) -> str:
    """A row a key: name, default, type, meaning."""
    lines = [line(["key", "default", "type", "meaning"]), line(["---"] * 4)]
    for name, key in keys.items():
        meaning = key.meaning.removeprefix(key.kind).lstrip(":;, ")
        lines.append(line([code(name), code(key.default or ""), key.kind, meaning]))
    return "\n".join(lines)


def code(text: str) -> str:
    """Text as code; empty text as an empty cell."""
    return f"`` {text} ``" if "`" in text else f"`{text}`" if text else ""


def line(cells: list[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def root_page() -> str:
    """The keys that every experiment has."""
    path = CONF / "config.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    chosen = [f"`{entry}`" for entry in companions(document) if "None" not in entry]
    return f"""# Keys of every experiment

Set one by `KEY=VALUE` on the command line, by a keyword of `rlfactory.train`, or in a file of your
own. From `conf/config.yaml`; the options that are chosen by default are {", ".join(chosen)}.
`rlfactory --cfg job` prints the whole configuration of an experiment, `rlfactory explain KEY` where
a value comes from.

{table(file_reference(path))}
"""


def option_section(group: str, name: str, path: Path) -> str:
    """An option: its file, its companions, its keys, and what it sets elsewhere."""
    document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    found = file_reference(path)
    own = {key: known for key, known in found.items() if key.partition(".")[0] == group}
    others = {key: known.default for key, known in found.items() if key not in own}
    described = first_comment(path).rstrip(".")
    page = DOCS / group / f"{name}.md"
    more = f" [Details](../../../{group}/{name}.md)." if page.is_file() else ""
    parts = [f"## `{group}={name}`", f"{described}.{more} From `{path.relative_to(ROOT)}`."]
    if selected := companions(document):
        parts.append("Selects " + ", ".join(map(code, selected)) + ".")
    if own:
        parts.append(table(own))
    if others:
        settings = ", ".join(code(f"{key}={value}") for key, value in others.items())
        parts.append(f"Sets {settings}.")
    return "\n\n".join(parts)


def own_keys(group: str, name: str) -> str:
    """The table of an option's keys, for its own page."""
    found = file_reference(options(group)[name])
    return table({key: known for key, known in found.items() if key.partition(".")[0] == group})


def group_page(group: str) -> str:
    """A group's options."""
    sections = [option_section(group, name, path) for name, path in options(group).items()]
    return f"# `{group}`: options\n\n`{group}=OPTION` chooses {GROUPS[group]}.\n\n" + "\n\n".join(
        sections
    )


def pages() -> dict[str, str]:
    """The text of each page by its name."""
    groups = {f"config/{group}.md": group_page(group) + "\n" for group in GROUPS}
    return {"config/keys.md": root_page(), **groups}
