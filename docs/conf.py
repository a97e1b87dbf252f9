"""Configuration of Sphinx. Nothing is executed: the notebooks carry their outputs."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # autodoc imports jaxsaw

project = "jaxsaw"
author = "The jaxsaw developers"
project_copyright = "The jaxsaw developers"
release = version = "0.1.0"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "**/.ipynb_checkpoints", "**/runs"]

nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say shapes; unions of all that is an array hide names
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Shape"]
napoleon_use_rtype = False
napoleon_use_ivar = True
add_module_names = False
maximum_signature_line_length = 88

html_theme = "furo"
html_title = "jaxsaw"
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
