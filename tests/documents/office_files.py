"""Builds Office files for tests from the XML of their parts."""

from __future__ import annotations

import re
import zipfile
from io import BytesIO

from ragembed.documents.model import ParsedDocument

_ODF = "urn:oasis:names:tc:opendocument:xmlns:{}:1.0"
_OOXML = "http://schemas.openxmlformats.org/{}"
NAMESPACES = {
    "w": _OOXML.format("wordprocessingml/2006/main"),
    "p": _OOXML.format("presentationml/2006/main"),
    "x": _OOXML.format("spreadsheetml/2006/main"),
    "a": _OOXML.format("drawingml/2006/main"),
    "c": _OOXML.format("drawingml/2006/chart"),
    "dgm": _OOXML.format("drawingml/2006/diagram"),
    "wp": _OOXML.format("drawingml/2006/wordprocessingDrawing"),
    "xdr": _OOXML.format("drawingml/2006/spreadsheetDrawing"),
    "m": _OOXML.format("officeDocument/2006/math"),
    "r": _OOXML.format("officeDocument/2006/relationships"),
    "mc": _OOXML.format("markup-compatibility/2006"),
    "cx": "http://schemas.microsoft.com/office/drawing/2014/chartex",
    "v": "urn:schemas-microsoft-com:vml",
    "unknown": "http://example.com/",
    "math": "http://www.w3.org/1998/Math/MathML",
    "xlink": "http://www.w3.org/1999/xlink",
    "dc": "http://purl.org/dc/elements/1.1/",
    "svg": _ODF.format("svg-compatible"),
    "draw": _ODF.format("drawing"),
    **{name: _ODF.format(name) for name in ("office", "text", "table", "style", "presentation", "chart")},
}


def declared(xml: str, strict: bool = False) -> str:
    """Declare the prefixes of a part in its first tag: in the transitional or in the strict form of ISO 29500."""
    prefixes = sorted(set(re.findall(r"[< ](\w+):", xml)) & set(NAMESPACES))
    names = "".join(f' xmlns:{prefix}="{NAMESPACES[prefix]}"' for prefix in prefixes)
    if strict:
        names = names.replace("schemas.openxmlformats.org", "purl.oclc.org/ooxml").replace("/2006/", "/")
    return re.sub(r"(<\w[^\s/>]*)", rf"\1{names}", xml, count=1)


def outline(document: ParsedDocument) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(block.kind, document.text[block.start : block.end], block.headings) for block in document.blocks]


def make_zip(members: dict[str, str | bytes]) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def relations(**targets: str) -> str:
    """Return a part with relations: the type and id of each are its name, without digits for the type."""
    entries = (
        f'<Relationship Id="{name}" Type="http://x/{name.rstrip("0123456789")}" Target="{target}"/>'
        for name, target in targets.items()
    )
    return f"<Relationships>{''.join(entries)}</Relationships>"


def make_docx(body: str, strict: bool = False, **parts: str | bytes) -> bytes:
    """Return a Word file; each further part, such as ``comments``, is related to it. Bytes are a part as they are."""
    return make_zip(
        {
            "word/document.xml": declared(f"<w:document><w:body>{body}</w:body></w:document>", strict),
            "word/_rels/document.xml.rels": relations(**{name: f"{name}.xml" for name in parts}),
            **{
                f"word/{name}.xml": declared(part, strict) if isinstance(part, str) else part
                for name, part in parts.items()
            },
        }
    )


def make_pptx(*shapes: str, strict: bool = False, **parts: str) -> bytes:
    """Return a presentation with a slide for each text of shapes. The further parts are related to all slides."""
    slides = {f"slide{number}": shape for number, shape in enumerate(shapes, 1)}
    listed = "".join(f'<p:sldId r:id="{name}"/>' for name in slides)
    targets = {name: f"{name}.xml" for name in slides}
    return make_zip(
        {
            "ppt/presentation.xml": declared(f"<p:presentation>{listed}</p:presentation>", strict),
            "ppt/_rels/presentation.xml.rels": relations(**targets),
            **{
                f"ppt/{name}.xml": declared(f"<p:sld><p:cSld><p:spTree>{shape}</p:spTree></p:cSld></p:sld>", strict)
                for name, shape in slides.items()
            },
            **{f"ppt/_rels/{name}.xml.rels": relations(**{part: f"{part}.xml" for part in parts}) for name in slides},
            **{f"ppt/{name}.xml": declared(part, strict) for name, part in parts.items()},
        }
    )


def make_odf(kind: str, body: str, styles: str = "", doctype: str = "", **objects: str) -> bytes:
    """Return a text, presentation or spreadsheet in OpenDocument, with automatic styles and objects in it."""
    content = declared(
        f"<office:document-content><office:automatic-styles>{styles}</office:automatic-styles><office:body>"
        f"<office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
    )
    parts = {f"{name}/content.xml": declared(part) for name, part in objects.items()}
    return make_zip({"content.xml": doctype + content, **parts})


def make_xlsx(
    *sheets: str,
    strings: str = "",
    styles: str = "",
    after: str = "",
    parts: dict[str, str] | None = None,
    **attributes: str,
) -> bytes:
    """Return an Excel file with the rows of sheets that are named A, B, …, and with shared strings and styles.

    ``after`` follows the rows in each sheet, and ``parts`` are related to all sheets.
    """
    parts = parts or {}
    names = [chr(ord("A") + number) for number in range(len(sheets))]
    listed = "".join(f'<sheet name="{name}" r:id="worksheet{number}"/>' for number, name in enumerate(names))
    properties = "".join(f' {name}="{value}"' for name, value in attributes.items())
    targets = {f"worksheet{number}": f"{name}.xml" for number, name in enumerate(names)}
    return make_zip(
        {
            "xl/workbook.xml": f'<workbook xmlns:r="r"><workbookPr{properties}/><sheets>{listed}</sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relations(**targets, sharedStrings="strings.xml", styles="styles.xml"),
            "xl/strings.xml": f"<sst>{strings}</sst>",
            "xl/styles.xml": f"<styleSheet>{styles}</styleSheet>",
            **{
                f"xl/{name}.xml": f"<worksheet><sheetData>{rows}</sheetData>{after}</worksheet>"
                for name, rows in zip(names, sheets, strict=True)
            },
            **{f"xl/_rels/{name}.xml.rels": relations(**{part: f"{part}.xml" for part in parts}) for name in names},
            **{f"xl/{name}.xml": declared(part) for name, part in parts.items()},
        }
    )


def row_of(*cells: str) -> str:
    """Return a row with text cells. A cell that begins with ``=`` is a number."""
    return f"<row>{''.join(_cell(cell) for cell in cells)}</row>"


def _cell(text: str) -> str:
    return f"<c><v>{text[1:]}</v></c>" if text.startswith("=") else f'<c t="str"><v>{text}</v></c>'


def paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"
