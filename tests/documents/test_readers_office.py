"""Readers of Office and OpenDocument files: golden files of real programs, and files with one property each."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import ReadOptions, read

DATA = Path(__file__).parents[1] / "data" / "office"


def documents(name: str, options: ReadOptions | None = None) -> list[ParsedDocument]:
    return list(read(DATA / name, options or ReadOptions()))


def outline(document: ParsedDocument) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(block.kind, document.text[block.start : block.end], block.headings) for block in document.blocks]


def texts(found: Sequence[ParsedDocument]) -> list[str]:
    return [document.text.rstrip("\n") for document in found]


TITLE = "Kettle handbook"
HANDBOOK = [
    ("heading", TITLE, (TITLE,)),
    ("heading", "Safety", (TITLE, "Safety")),
    ("text", "Keep the kettle away from the edge of the table.", (TITLE, "Safety")),
    ("text", "Note: Hot water scalds within one second.", (TITLE, "Safety")),
    ("heading", "Children", (TITLE, "Safety", "Children")),
    ("text", "Children use the kettle only with an adult.", (TITLE, "Safety", "Children")),
    ("text", "Comment by Ann Lee: Ask the lawyers about the age limit.", (TITLE, "Safety", "Children")),
    ("text", "- Fill it up to the mark.", (TITLE, "Safety", "Children")),
    ("text", "- Close the lid: “click”.", (TITLE, "Safety", "Children")),
    ("heading", "Descaling", (TITLE, "Descaling")),
    ("text", "Descale as often as the table says.", (TITLE, "Descaling")),
    ("table", "Water | Interval\nsoft | 6 months\nhard | 3 weeks", (TITLE, "Descaling")),
    ("text", "The last paragraph.", (TITLE, "Descaling")),
    ("text", "Tip: use vinegar.", (TITLE, "Descaling")),
]


@pytest.mark.parametrize("suffix", ["docx", "odt", "rtf", "doc"])
def test_text_document_has_headings_notes_comments_and_boxes_without_deletions(suffix: str) -> None:
    if suffix == "doc" and not (shutil.which("soffice") or shutil.which("libreoffice")):
        pytest.skip("needs LibreOffice")
    (document,) = documents(f"handbook.{suffix}")
    assert outline(document) == HANDBOOK
    assert (document.title, document.line_numbers, document.page_numbers) == (TITLE, None, ())


@pytest.mark.parametrize("suffix", ["pptx", "odp"])
def test_slides_are_pages_with_tables_groups_notes_and_comments(suffix: str) -> None:
    (document,) = documents(f"sales.{suffix}")
    assert outline(document) == [
        ("heading", "Kettle sales", ("Kettle sales",)),
        ("text", "More than last year\nWhistling models lead", ("Kettle sales",)),
        ("text", "Greet the guests first.", ("Kettle sales",)),
        ("heading", "Figures", ("Figures",)),
        ("table", "Quarter | Sold\nQ1 | 120", ("Figures",)),
        ("text", "Grouped remark", ("Figures",)),
        ("text", "Explain the first quarter.", ("Figures",)),
        ("text", "Comment by Ann Lee: Check the numbers.", ("Figures",)),
    ]
    assert document.page_numbers == [1] * 7 + [2] * 11


@pytest.mark.parametrize("suffix", ["xlsx", "xls", "ods"])
def test_sheet_with_a_header_gives_one_document_per_row(suffix: str) -> None:
    if suffix == "xls":
        pytest.importorskip("xlrd")
    found = documents(f"stock.{suffix}", ReadOptions(title_column="Model"))
    assert texts(found) == [
        "Stock of kettles, spring",
        "Price: 49.5\nPieces: 4\nValue: 198\nSince: 2024-02-29",
        "Price: 20\nPieces: 10\nValue: 200\nSince: 2025-12-01\nComment on Price: Price rises in May.",
        "Count the stock each Friday.\nAnn counts; Bo checks.",
    ]
    assert [document.title for document in found] == [None, "Gooseneck", "Whistling", None]
    assert [document.blocks[0].headings for document in found] == [("Stock",)] * 3 + [("Remarks",)]
    assert [(document.line_numbers or [0])[0] for document in found] == [1, 4, 6, 1]
