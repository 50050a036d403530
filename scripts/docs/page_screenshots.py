"""Pictures of a report's page as a desk and a phone show it, light and dark.

python scripts/docs/page_screenshots.py report.html FOLDER
"""

import sys
from pathlib import Path

from chromium import Chromium

WIDTHS = {"desk": 1280, "phone": 390}


def main() -> None:
    """Four pictures of the whole page."""
    page, folder = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    with Chromium() as browser:
        for name, width in WIDTHS.items():
            for shade in ("light", "dark"):
                browser.open(page, width=width, dark=shade == "dark")
                browser.shoot(folder / f"page_{name}_{shade}.png")


if __name__ == "__main__":
    main()
