"""Read PowerPoint files (Office Open XML): pptx."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.ooxml import (
    NAMESPACES,
    frame_text,
    graphic_texts,
    main_part,
    optional,
    properties_of,
    shapes_of,
    text_of,
)
from ragembed.documents.readers.package import ZipPackage, attribute, whole_number
from ragembed.documents.readers.properties import with_properties
from ragembed.documents.readers.reader import RawFile, ReadOptions
from ragembed.documents.readers.structure import (
    LimitExceededError,
    OutlineBuilder,
    Spans,
    comment_label,
    one_line,
)
from ragembed.errors import DocumentError

FURNITURE = frozenset({"dt", "ftr", "hdr", "sldNum", "sldImg"})
"""Placeholders for dates, footers and numbers, which repeat on each slide."""


def parse_pptx(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a PowerPoint file. Slides are pages with their notes and comments. A broken one is a warning.

    Without a title in its properties, the title of the file is that of its first slide.
    """
    package = ZipPackage(file.data, "PowerPoint file", NAMESPACES)
    main = main_part(package, "ppt/presentation.xml")
    relations = package.relations(main)
    slides = dict.fromkeys(  # a presentation names a slide once; repeated, it could fill the memory
        relations[key].target
        for entry in package.tree(main).iter("sldId")
        if (key := next((value for name, value in entry.items() if name.endswith("}id")), "")) in relations
    )
    parts = package.related(main, "commentAuthors") + package.related(main, "authors")
    authors = optional(package, parts, file.options)
    names = {attribute(author, "id"): attribute(author, "name") for root in authors for author in root}
    builder = OutlineBuilder()
    broken: list[str] = []
    for number, slide in enumerate(slides, 1):
        builder.place = number
        try:
            _add_slide(builder, package, slide, names, file.options)
        except LimitExceededError:
            raise
        except DocumentError as error:
            broken.append(f"slide {number}: {error}")
    if broken and not builder.blocks:
        raise DocumentError(broken[0])
    if broken:
        file.options.warn(f"{len(broken)} slides cannot be read ({broken[0]})")
    properties = properties_of(package, file.options)
    if properties.get("title") == "PowerPoint Presentation":
        del properties["title"]
    yield with_properties(builder.paged(properties.get("title") or builder.first_heading), properties)


def _add_slide(
    builder: OutlineBuilder, package: ZipPackage, part: str, authors: dict[str, str], options: ReadOptions
) -> None:
    root = package.tree(part)
    shapes = [shape for tree in root.iter("spTree") for shape in shapes_of(tree)]
    titles = [shape for shape in shapes if _placeholder(shape) in ("title", "ctrTitle")]
    title = one_line(frame_text(titles[0])) if titles else ""
    builder.headings.leave(0)
    if title:
        builder.add_heading(1, title)
    for shape in shapes:
        if _placeholder(shape) in FURNITURE:
            continue
        for table in shape.iter("tbl"):
            _add_table(builder, table)
        if shape not in titles[:1]:
            builder.add_paragraph(frame_text(shape))
        for text in graphic_texts(shape, package, part, options):
            builder.add_paragraph(text)
    for notes in optional(package, package.related(part, "notesSlide"), options):
        for shape in (shape for tree in notes.iter("spTree") for shape in shapes_of(tree)):
            if _placeholder(shape) == "body":
                builder.add_paragraph(frame_text(shape))
    for comments in optional(package, package.related(part, "comments"), options):
        for comment in comments.iter("cm"):
            label = comment_label(authors.get(attribute(comment, "authorId"), ""))
            builder.add_note(comment.findtext("text") or text_of(comment), label)
    builder.finish()


def _add_table(builder: OutlineBuilder, table: Element) -> None:
    builder.end_table()
    spans = Spans()
    properties = table.find("tblPr")
    has_header = properties is not None and properties.get("firstRow") in ("1", "true")
    for row in table.iterfind("tr"):
        cells = [
            (text_of(cell), whole_number(cell.get("gridSpan", ""), 1), whole_number(cell.get("rowSpan", ""), 1))
            for cell in row.iterfind("tc")
            if not {cell.get("hMerge"), cell.get("vMerge")} & {"1", "true"}
        ]
        builder.add_row(spans.row(cells, is_header=has_header))
        has_header = False
    builder.end_table()


def _placeholder(shape: Element) -> str:
    """Return the type of the placeholder that a shape fills, or an empty string."""
    for placeholder in shape.iter("ph"):
        return attribute(placeholder, "type", "obj")
    return ""
