"""What Sphinx needs to know; `make docs` builds the site into build/docs."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # generate.py
sys.path.insert(0, str(Path(__file__).parent.parent / ".ns"))

project = "fieldslab"
author = "The fieldslab authors"
copyright = "2026, The fieldslab authors"
version = release = installed_version("fieldslab")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_copybutton",
    "generate",
]
default_role = "code"
suppress_warnings = ["misc.highlighting_failure"]  # JSON with dots in FORMAT.md

pygments_dark_style = "github-dark"

smartquotes_action = "qe"  # no dashes: they would be made of options such as --jobs

html_theme = "furo"
html_title = "fieldslab"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False

# Types stand in the signatures; docstrings are numpy style, without types.
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
napoleon_google_docstring = False
napoleon_use_rtype = False

myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True

# Notebooks are stored without outputs, and run when the site is built.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
