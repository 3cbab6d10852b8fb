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
smartquotes = False  # quotes and dashes in options are code

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
autodoc_preserve_defaults = True
autoclass_content = "class"
napoleon_google_docstring = False
napoleon_use_rtype = True
napoleon_custom_sections = [("Attributes", "params_style")]

html_theme = "furo"
html_title = f"ragembed {version}"
html_static_path = ["_static"]
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"


def shorten_signature(_app, _what, name, obj, _options, signature, return_annotation):
    """Hide constructors that users do not call, the arguments that LangChain adds, and ``<factory>``."""
    if getattr(obj, "_is_protocol", False) or name == "ragembed.Store":
        return "", None
    for long, short in {"*args, name=None, tags=None, metadata=None, ": "*, ", "<factory>": "..."}.items():
        signature = signature and signature.replace(long, short)
    return signature, return_annotation


def skip_pydantic_members(_app, _what, name, *_):
    """Hide the members that pydantic adds to each model."""
    return True if name in {"model_config", "model_post_init"} else None


def examples_as_code(_app, _context, lines):
    """Show the examples in the help of a command as code; sphinx-click shows them as lines of text."""
    inside = False
    for i, line in enumerate(lines):
        example = line.startswith("| ")
        if example:
            start = "" if inside else ".. code-block:: text\n\n"
            lines[i] = start + "   " + line.removeprefix("| ")
        inside = example
    lines[:] = "\n".join(lines).split("\n")


def setup(app):
    """Connect the functions of this file to Sphinx."""
    app.connect("autodoc-skip-member", skip_pydantic_members)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("sphinx-click-process-description", examples_as_code)
