"""The documentation site: `sphinx-build -W docs build/site`, without a network."""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent / "src"), str(DOCS.parent / "scripts" / "docs")]

from rlfactory.utils.version import __version__  # noqa: E402

project = "rlfactory"
author = "the rlfactory authors"
release = version = __version__
html_title = "rlfactory"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "site_pages",  # scripts/docs/site_pages.py: generated pages, links to files outside docs/
]
exclude_patterns = ["**/.ipynb_checkpoints"]

# Markdown
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # notebooks are executed by their own test; their outputs are stored

# docstrings: Google style, single backticks are code
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88

# the page
html_theme = "pydata_sphinx_theme"
html_sidebars: dict[str, list[str]] = {"index": []}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "header_links_before_dropdown": 9,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": False,
    "show_nav_level": 1,
    "navigation_depth": 3,
    "collapse_navigation": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "back_to_top_button": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"
