"""Sphinx configuration: ``make docs`` builds the site, and a warning is an error."""

from ragembed.version import __version__

project = "ragembed"
author = "the ragembed authors"
copyright = f"2026, {author}"  # noqa: A001  Sphinx's name
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
nitpicky = False

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 4

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autoclass_content = "class"
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"ragembed {version}"
html_static_path = ["_static"]
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"
