"""Read Word and PowerPoint files with python-docx and python-pptx."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.reader import ReadOptions
from ragembed.documents.readers.structure import HeadingPath, TextBuilder, one_line, open_archive
from ragembed.errors import DocumentError
from ragembed.extras import needed_for

HEADING_STYLE = re.compile(r"heading (\d)\Z", re.IGNORECASE)
# Errors that the packages raise for missing or malformed parts, besides their own. Those of lxml are SyntaxErrors.
STRUCTURE_ERRORS = (
    AttributeError,
    LookupError,
    OSError,
    SyntaxError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


def parse_docx(path: Path, data: bytes, options: ReadOptions) -> Iterator[ParsedDocument]:  # noqa: ARG001
    """Read a Word file: headings (recognised by their style), paragraphs and tables, without line and page numbers.

    Raises
    ------
    DocumentError
        If the file is broken or encrypted.
    MissingExtraError
        If python-docx is not installed.
    """
    with needed_for("reading Word files"):
        from docx import Document
        from docx.opc.exceptions import OpcError
        from docx.table import Table
    open_archive(data).close()
    builder, headings = TextBuilder(), HeadingPath()
    try:
        document = Document(BytesIO(data))
        title = one_line(document.core_properties.title or "")
        for item in document.iter_inner_content():
            if isinstance(item, Table):
                builder.add_text("\n".join(_docx_rows(item)), 0, "table", headings.headings)
            else:
                title = _add_docx_paragraph(builder, headings, item) or title
    except (OpcError, *STRUCTURE_ERRORS) as error:
        raise DocumentError(f"corrupt Word file: {error or type(error).__name__}") from error
    yield ParsedDocument(builder.text, builder.blocks, title or None, page_numbers=())


def parse_pptx(path: Path, data: bytes, options: ReadOptions) -> Iterator[ParsedDocument]:  # noqa: ARG001
    """Read a PowerPoint file. Each slide is a page with its title as heading. The notes follow the slide's text.

    Raises
    ------
    DocumentError
        If the file is broken or encrypted.
    MissingExtraError
        If python-pptx is not installed.
    """
    with needed_for("reading PowerPoint files"):
        from pptx import Presentation
        from pptx.exc import PythonPptxError
    open_archive(data).close()
    builder = TextBuilder()
    try:
        presentation = Presentation(BytesIO(data))
        title = one_line(presentation.core_properties.title or "")
        for number, slide in enumerate(presentation.slides, 1):
            _add_slide(builder, slide, number)
    except (PythonPptxError, *STRUCTURE_ERRORS) as error:
        raise DocumentError(f"corrupt PowerPoint file: {error or type(error).__name__}") from error
    if title == "PowerPoint Presentation":
        title = ""
    yield ParsedDocument(builder.text, builder.blocks, title or None, page_numbers=builder.places)


def _add_docx_paragraph(builder: TextBuilder, headings: HeadingPath, paragraph: Any) -> str:
    """Add one paragraph. Return its text if its style is Title, else an empty string."""
    text = paragraph.text.strip()
    style = (paragraph.style.name or "") if paragraph.style is not None else ""
    heading = HEADING_STYLE.match(style)
    if not text:
        return ""
    if heading or style == "Title":
        level = int(heading[1]) if heading else 0
        builder.add_text(text, 0, "heading", headings.enter(level, one_line(text)))
        return "" if heading else one_line(text)
    prefix = "- " if style.startswith("List") else ""
    builder.add_text(prefix + text, 0, "text", headings.headings)
    return ""


def _docx_rows(table: Any) -> Iterator[str]:
    """Yield the text of each row. A vertically merged cell is repeated in each of its rows.

    ``row.cells`` gives the same result, but resolves merged cells recursively and can reach the recursion limit.
    """
    from docx.table import _Cell

    above: dict[int, str] = {}
    for row in table.rows:
        column = int(next(iter(row._tr.xpath("./w:trPr/w:gridBefore/@w:val")), 0))
        current: dict[int, str] = {}
        for tc in row._tr.tc_lst:
            continued = tc.vMerge == "continue" and column in above
            current[column] = above[column] if continued else _Cell(tc, table).text
            column += tc.grid_span
        yield _row(current.values())
        above = current


def _row(cells: Iterable[str]) -> str:
    return " | ".join(one_line(cell) for cell in cells).rstrip(" |")


def _add_slide(builder: TextBuilder, slide: Any, number: int) -> None:
    title_shape = slide.shapes.title
    title = one_line(title_shape.text_frame.text) if title_shape is not None else ""
    headings = (title,) if title else ()
    if title:
        builder.add_text(title, number, "heading", headings)
    for shape in _shapes(slide.shapes):
        if title_shape is not None and shape.shape_id == title_shape.shape_id:
            continue
        if getattr(shape, "has_table", False):
            rows = (_row(cell.text for cell in row.cells) for row in shape.table.rows)
            builder.add_text("\n".join(rows), number, "table", headings)
        elif shape.has_text_frame:
            builder.add_text(_unwrapped(shape.text_frame.text), number, "text", headings)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        builder.add_text(_unwrapped(slide.notes_slide.notes_text_frame.text), number, "text", headings)


def _shapes(shapes: Any) -> Iterator[Any]:
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        else:
            yield shape


def _unwrapped(text: str) -> str:
    """Replace PowerPoint's soft line breaks, which are vertical tabs."""
    return text.replace("\v", "\n")
