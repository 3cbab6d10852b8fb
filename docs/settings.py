"""Write the tables of settings into ``docs/reference/configuration.md``: ``python docs/settings.py``."""

from __future__ import annotations

import re
from pathlib import Path

from ragembed import EmbedderConfig
from ragembed.config.fields import reference_table
from ragembed.indexes import Budget, IndexConfig, IndexingOptions

PAGE = Path(__file__).parent / "reference" / "configuration.md"


def with_tables(page: str) -> str:
    """Return the page with the table of each class below the comment with its name."""
    for kind in (EmbedderConfig, IndexConfig, Budget, IndexingOptions):
        pattern = rf"(?<=<!-- {kind.__name__} -->\n\n)(?:\|.*\n)*"
        page = re.sub(pattern, lambda _, kind=kind: f"{reference_table(kind)}\n", page)
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
