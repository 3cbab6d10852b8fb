"""Readers of text formats on small samples of real files: titles, blocks, headings and lines stay as they are.

``python tests/documents/test_readers_samples.py`` writes the expected output again. Check the difference before you
commit it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragembed.documents.readers import read

SAMPLES = Path(__file__).resolve().parents[1] / "data" / "text"
EXPECTED = SAMPLES / "expected.json"
NAMES = sorted(path.name for path in SAMPLES.iterdir() if path.name not in ("README.md", EXPECTED.name))


def outline(path: Path) -> list[dict[str, Any]]:
    """Return the title and metadata of each document, and kind, first line, headings and text of its blocks."""
    documents = []
    for document in read(path.name, path.read_bytes()):
        blocks = []
        for block in document.blocks:
            line = document.text.count("\n", 0, block.start)
            place = line + 1 if document.line_numbers is None else document.line_numbers[line]
            blocks.append([block.kind, place, " > ".join(block.headings), document.text[block.start : block.end]])
        documents.append({"title": document.title, "metadata": dict(document.metadata), "blocks": blocks})
    return documents


@pytest.mark.parametrize("name", NAMES)
def test_sample_is_read_as_expected(name: str) -> None:
    assert outline(SAMPLES / name) == json.loads(EXPECTED.read_text(encoding="utf-8"))[name]


if __name__ == "__main__":
    expected = {name: outline(SAMPLES / name) for name in NAMES}
    EXPECTED.write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
