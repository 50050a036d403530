"""Tables of pages that the site's build makes, and no page stores.

A page has a line `<!-- generated: MODULE.FUNCTION ARGUMENT ... -->`; in its place comes what that
function of scripts/docs returns.

python scripts/docs/generated.py names.tables        # print a table
python scripts/docs/generated.py migrating.flags trl
"""

import re
import sys
from importlib import import_module

MARK = re.compile(r"^<!-- generated: ([\w.]+(?: \w+)*) -->$", re.MULTILINE)


def filled(text: str) -> str:
    """A page's text with its tables."""
    return MARK.sub(lambda match: made(*match[1].split()), text)


def made(name: str, *arguments: str) -> str:
    """What `MODULE.FUNCTION` returns."""
    module, _, function = name.partition(".")
    text: str = getattr(import_module(module), function)(*arguments)
    return text.strip()


if __name__ == "__main__":
    print(made(*sys.argv[1:]))
