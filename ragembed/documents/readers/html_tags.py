"""What HTML's elements, classes and roles mean for the text of a page."""

from __future__ import annotations

NEVER_TEXT = frozenset((
    "script", "style", "noscript", "template", "svg", "select", "button", "textarea", "iframe", "object",
    "canvas", "audio", "video",
))  # fmt: skip
MENU_TAGS = frozenset(("nav", "header", "footer", "aside"))
MENU_ROLES = frozenset(("navigation", "search", "banner", "contentinfo"))
MENU_CLASSES = frozenset((
    "sphinxsidebar", "related", "mobile-nav", "footer", "headerlink", "viewcode-link", "linenos",
))  # fmt: skip
MAIN_TAGS = frozenset(("main", "article"))
VOID_TAGS = frozenset((
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr",
))  # fmt: skip
HEADING_TAGS = {f"h{level}": level for level in range(1, 7)}
PARAGRAPH_TAGS = frozenset((
    "p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "blockquote", "figure",
    "figcaption", "form", "fieldset", "details", "summary", "address", "hr", "body", "html", "center",
    "caption",
))  # fmt: skip
LABEL_CLASS = "admonition-title"
LIST_TAGS = frozenset(("ul", "ol", "menu", "dir"))
FLAT_IN_CELLS = LIST_TAGS | {"li", "dl", "dt", "dd"}
LAYOUT_TABLE = frozenset(("highlighttable", "presentation", "none"))
SIGNATURE_LEVEL = 10
"""Heading levels from here on belong to the entries of an API reference."""
SHORTEST_PAGE = 80
"""Characters; a page with fewer is looked at again with its menus."""
