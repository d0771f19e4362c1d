"""How Sphinx makes the site of these pages: `make docs`. What is our own about it is in `_site/pages.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_site"))

import springtide

project = "Springtide"
author = "the authors of Springtide"
version = release = springtide.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "pages"]
exclude_patterns = ["README.md", "_site"]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

default_role = "code"  # docstrings have names between single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
python_display_short_literal_types = True
python_use_unqualified_type_names = True
# Signatures name types of other libraries and of ours that are not public.
nitpick_ignore_regex = [("py:.*", r".*")]

suppress_warnings = ["misc.highlighting_failure"]  # SQL with an ellipsis

html_theme = "furo"
html_title = f"Springtide {version}"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_favicon = "../src/springtide/ui/assets/icon.svg"
html_logo = "../src/springtide/ui/assets/icon.svg"
html_show_sphinx = False
html_copy_source = False
