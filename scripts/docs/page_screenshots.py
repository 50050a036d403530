"""Screenshots of a report's page on a desktop and a phone, light and dark.

python scripts/docs/page_screenshots.py report.html FOLDER

Needs playwright and the system's Chromium (`apt-get install chromium`).
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTHS = {"desk": 1280, "phone": 390}


def main() -> None:
    """Write four images of the full page."""
    page, folder = map(Path, sys.argv[1:])
    chromium = next((path for name in NAMES if (path := shutil.which(name))), None)
    if chromium is None:
        sys.exit("error: Chromium is not installed; type apt-get install chromium")
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, width in WIDTHS.items():
            for shade in ("light", "dark"):
                size = {"width": width, "height": 900}
                shown = browser.new_page(viewport=size, color_scheme=shade)
                shown.goto(page.absolute().as_uri())
                shown.screenshot(path=folder / f"page_{name}_{shade}.png", full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
