"""Write the tables of settings into ``docs/reference/configuration.md``: ``python docs/settings.py``."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from ragembed import EmbedderConfig
from ragembed.config.fields import Setting
from ragembed.indexes import Budget, IndexConfig, IndexingOptions

PAGE = Path(__file__).parent / "reference" / "configuration.md"


def reference_table(kind: type) -> str:
    """Return the settings of a dataclass as the Markdown table of the reference."""
    lines = ["| field | option | default | meaning |", "| --- | --- | --- | --- |"]
    for field in dataclasses.fields(kind):
        if not field.metadata:
            continue
        about: Setting = field.metadata["setting"]
        value = list(field.default) if isinstance(field.default, tuple) else field.default
        is_described = value in (None, []) or about.metavar == "SIZE"
        default = (about.default or "–") if is_described else f"`{value}`"
        text = f"{about.text} {about.more}".strip()
        if about.choices:
            text += f" One of {', '.join(f'`{choice}`' for choice in about.choices)}."
        text += f" [More]({about.page})" if about.page else ""
        lines.append(f"| `{field.name}` | {f'`{about.flag}`' if about.flag else '–'} | {default} | {text} |")
    return "\n".join(lines)


def with_tables(page: str) -> str:
    """Return the page with the table of each class below the comment with its name."""
    for kind in (EmbedderConfig, IndexConfig, Budget, IndexingOptions):
        pattern = rf"(?<=<!-- {kind.__name__} -->\n\n)(?:\|.*\n)*"
        page = re.sub(pattern, lambda _, kind=kind: f"{reference_table(kind)}\n", page)
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
