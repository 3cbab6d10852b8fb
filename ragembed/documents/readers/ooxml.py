"""What Word, PowerPoint and Excel files share: namespaces, properties, texts, charts, diagrams and pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby
from xml.etree.ElementTree import Element

from ragembed.documents.readers.formulas import LEVEL, LOWERED, RAISED, SYMBOL_FONT, formula, scripts, symbols
from ragembed.documents.readers.numbering import numeral
from ragembed.documents.readers.package import ZipPackage, attribute, whole_number
from ragembed.documents.readers.properties import core_properties
from ragembed.documents.readers.reader import ReadOptions
from ragembed.documents.readers.spreadsheet import shown_number
from ragembed.documents.readers.structure import LimitExceededError, indent, one_line
from ragembed.errors import DocumentError

NAMESPACES = {
    f"http://{base}/{folder}/{year}{name}": prefix
    for base, year in (("schemas.openxmlformats.org", "2006/"), ("purl.oclc.org/ooxml", ""))
    for folder, name, prefix in (
        ("wordprocessingml", "main", ""),
        ("presentationml", "main", ""),
        ("spreadsheetml", "main", ""),
        *(("drawingml", name, "") for name in ("main", "picture", "wordprocessingDrawing", "spreadsheetDrawing")),
        ("drawingml", "chart", "c-"),
        ("drawingml", "diagram", "dgm-"),
        ("officeDocument", "math", "m-"),
    )
} | {
    "http://schemas.openxmlformats.org/markup-compatibility/2006": "",
    "http://schemas.microsoft.com/office/powerpoint/2018/8/main": "",
    "http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments": "",
    "http://schemas.microsoft.com/office/drawing/2014/chartex": "cx-",
    "urn:schemas-microsoft-com:vml": "v-",
    "http://schemas.openxmlformats.org/package/2006/metadata/core-properties": "",
    "http://purl.org/dc/elements/1.1/": "",
    "http://purl.org/dc/terms/": "",
}
"""The namespaces of the standard, in its transitional and its strict form, and of extensions."""
NUMBER_FORMAT = re.compile(r"(arabic|alphaLc|alphaUc|romanLc|romanUc)(Period|ParenR|ParenBoth|Plain)")
KINDS = {"arabic": "decimal", "alphaLc": "a", "alphaUc": "A", "romanLc": "i", "romanUc": "I"}
SIGNS = {"Period": "{}. ", "ParenR": "{}) ", "ParenBoth": "({}) ", "Plain": "{} "}
UNSEEN = frozenset({"del", "moveFrom", "rPr", "pPr", "tcPr", "tblPr", "instrText", "delText", "rt"})
"""Elements without text that is shown: tracked deletions, properties, field codes, pronunciation."""
SYMBOL_CODE = re.compile(r"(?:00|[Ff]0)[0-9A-Fa-f]{2}")
BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
FILE_NAME = re.compile(r"\S+\.(?:png|jpe?g|gif|bmp|svg|[ew]mf|tiff?)\Z", re.IGNORECASE)


def main_part(package: ZipPackage, usual: str) -> str:
    """Return the name of the main part of a package."""
    return next(iter(package.related("", "officeDocument")), usual)


def properties_of(package: ZipPackage, options: ReadOptions) -> dict[str, str]:
    """Return the properties of a file. Broken ones are a warning."""
    return core_properties(optional(package, package.related("", "core-properties"), options))


def optional(package: ZipPackage, parts: list[str], options: ReadOptions) -> list[Element]:
    """Return the root elements of parts that the document can do without. A broken part is a warning."""
    roots = []
    for part in parts:
        try:
            roots.append(package.tree(part))
        except LimitExceededError:  # noqa: PERF203
            raise
        except DocumentError as error:
            options.warn(str(error))
    return roots


def text_of(element: Element, replace: Callable[[Element], str | None] = lambda _: None) -> str:
    """Return the text of an element. Where ``replace`` returns a text for an element inside it, that is used."""
    parts: list[str] = []
    _collect(element, parts, replace)
    return scripts("".join(parts))


def _collect(element: Element, parts: list[str], replace: Callable[[Element], str | None]) -> None:
    for child in element:
        tag = child.tag
        if tag in UNSEEN:
            continue
        if tag == "t":
            parts.append(child.text or "")
        elif tag in BREAKS:
            parts.append(BREAKS[tag])
        elif tag == "r":
            _collect_run(child, parts, replace)
        elif tag == "sym":
            is_known = attribute(child, "font") == SYMBOL_FONT and SYMBOL_CODE.fullmatch(attribute(child, "char"))
            parts.append(symbols(chr(int(attribute(child, "char"), 16))) if is_known else "")
        elif tag in ("m-oMath", "m-oMathPara"):
            text = formula(child)
            touches = text[:1].isalnum() and parts and parts[-1][-1:].isalnum()
            parts.append(f" {text}" if touches else text)
        elif tag == "AlternateContent":
            _collect(shown_alternative(child), parts, replace)
        elif (text_instead := replace(child)) is not None:
            parts.append(text_instead)
        else:
            _collect(child, parts, replace)
            if tag in ("p", "tc"):
                parts.append("\n")


def _collect_run(run: Element, parts: list[str], replace: Callable[[Element], str | None]) -> None:
    """Add the text of a run, unless it is hidden."""
    properties = run.find("rPr")
    if replace(run) is not None or (properties is not None and is_on(properties, "vanish")):
        return
    mark, inner = _script_of(properties), list[str]()
    _collect(run, inner, replace)
    fonts = None if properties is None else properties.find("rFonts")
    is_symbol = fonts is not None and attribute(fonts, "ascii") == SYMBOL_FONT
    parts += [mark, *(map(symbols, inner) if is_symbol else inner), LEVEL if mark else ""]


def is_on(properties: Element, name: str) -> bool:
    """Return whether a property that is on or off is on."""
    own = properties.find(name)
    return own is not None and attribute(own, "val", "1") not in ("0", "false", "off")


def _script_of(properties: Element | None) -> str:
    """Return the mark for a raised or lowered run of Word, Excel or DrawingML, else an empty string."""
    if properties is None:
        return ""
    baseline = properties.get("baseline")
    if baseline is not None:
        return "" if baseline.strip("0%") in ("", "-") else LOWERED if baseline.startswith("-") else RAISED
    position = properties.find("vertAlign")
    return "" if position is None else {"superscript": RAISED, "subscript": LOWERED}.get(attribute(position, "val"), "")


def shown_alternative(element: Element) -> Element:
    """Return the first of several forms of the same content."""
    choice = element.find("Choice")
    fallback = element.find("Fallback")
    return choice if choice is not None else fallback if fallback is not None else element


def shapes_of(tree: Element) -> Iterator[Element]:
    """Yield the shapes of a slide or sheet, also those in groups."""
    for shape in tree:
        if shape.tag in ("sp", "graphicFrame", "pic", "cxnSp"):
            yield shape
        elif shape.tag == "grpSp":
            yield from shapes_of(shape)
        elif shape.tag == "AlternateContent":
            yield from shapes_of(shown_alternative(shape))


def frame_text(shape: Element) -> str:
    """Return the paragraphs of a shape, with the numbers that PowerPoint shows in front of list items."""
    lines = []
    for body in shape.iterfind("txBody"):
        counts: dict[int, int] = {}
        for paragraph in body.iterfind("p"):
            text = text_of(paragraph)
            properties = paragraph.find("pPr")
            level = 0 if properties is None else whole_number(properties.get("lvl", ""))
            numbering = None if properties is None else properties.find("buAutoNum")
            match = None if numbering is None else NUMBER_FORMAT.fullmatch(numbering.get("type", ""))
            if text.strip():
                counts = {at: count for at, count in counts.items() if at < level or (at == level and match)}
            if numbering is not None and match and text.strip():
                counts[level] = counts.get(level, whole_number(numbering.get("startAt", ""), 1) - 1) + 1
                text = SIGNS[match[2]].format(numeral(KINDS[match[1]], counts[level])) + text
            lines.append(text)
    return "\n".join(lines)


def graphic_texts(element: Element, package: ZipPackage, part: str, options: ReadOptions) -> Iterator[str]:
    """Yield the alternative texts, charts and diagrams of the graphics in an element of a part, without text boxes."""
    relations = package.relations(part)
    seen: set[str] = set()
    for child in _graphics(element):
        tag = child.tag
        if tag in ("docPr", "cNvPr", "v-shape"):
            text = picture_text(child.get("descr") or child.get("alt") or child.get("title") or "")
            if text and text not in seen:
                seen.add(text)
                yield text
        elif tag in ("dgm-relIds", "c-chart", "cx-chart"):
            relation = relations.get(attribute(child, "dm" if tag == "dgm-relIds" else "id"))
            for root in optional(package, [relation.target] if relation else [], options):
                lines = _diagram_lines(root) if tag == "dgm-relIds" else _chart_lines(root)
                yield "\n".join(filter(None, lines))


def picture_text(alternative: str) -> str:
    """Return the alternative text of a picture with a label, or nothing if it is empty or a file name."""
    text = one_line(alternative)
    return f"Picture: {text}" if text and not FILE_NAME.match(text) else ""


def _graphics(element: Element) -> Iterator[Element]:
    for child in element:
        if child.tag == "AlternateContent":
            yield from _graphics(shown_alternative(child))
        elif child.tag != "txbxContent":
            yield child
            yield from _graphics(child)


def _diagram_lines(root: Element) -> Iterator[str]:
    """Yield the nodes of a diagram (SmartArt) as a list, with the nodes below each."""
    texts = {attribute(point, "modelId"): one_line(text_of(point)) for point in root.iter("dgm-pt")}
    below: dict[str, list[tuple[int, str]]] = {}
    for link in root.iter("dgm-cxn"):
        if link.get("type", "parOf") == "parOf":
            links = below.setdefault(link.get("srcId", ""), [])
            links.append((whole_number(link.get("srcOrd", "")), link.get("destId", "")))
    targets = {target for links in below.values() for _, target in links}
    pending = [(name, 0) for name in sorted(texts, key=lambda name: name in targets)][::-1]
    while pending:
        name, depth = pending.pop()
        text = texts.pop(name, None)
        if text is not None:
            yield f"{indent(depth)}- {text}" if text else ""
            pending += [(target, depth + bool(text)) for _, target in sorted(below.get(name, []), reverse=True)]


def _chart_lines(root: Element) -> Iterator[str]:
    """Yield the titles of a chart, and its values as a table with a column for each series."""
    for paragraph in root.iter("p"):
        yield one_line(text_of(paragraph))
    for title in (element for element in root.iter() if element.tag in ("c-title", "cx-title", "cx-series")):
        yield one_line(" ".join(value.text or "" for value in title.iter() if value.tag in ("c-v", "cx-v")))
    series = []
    for one in root.iter("c-ser"):
        labels, name = _points(_child(one, "c-cat", "c-xVal")), _points(_child(one, "c-tx"))
        series.append((labels, name, _points(_child(one, "c-val", "c-yVal"))))
        if sizes := _points(_child(one, "c-bubbleSize")):
            series.append((labels, {}, sizes))
    for labels, group in groupby(series, key=lambda one: one[0]):
        _, names, values = zip(*group, strict=True)
        yield from _table([labels, *values], [" ".join(name.values()) for name in names])
    for data in root.iter("cx-data"):
        yield from _table([_points(dimension) for dimension in data], [])


def _table(columns: list[dict[int, str]], names: list[str]) -> Iterator[str]:
    yield " | ".join(names).rstrip(" |")
    for at in sorted({at for column in columns for at in column}):
        yield " | ".join(column.get(at, "") for column in (columns if columns[0] else columns[1:])).rstrip(" |")


def _child(element: Element, *tags: str) -> Element | None:
    return next((child for child in element if child.tag in tags), None)


def _points(element: Element | None) -> dict[int, str]:
    """Return the texts of a column of a chart by their index. The levels of its labels are joined, outer ones first."""
    columns: list[dict[int, str]] = []
    for level in () if element is None else element.iter():
        points = [point for point in level if point.tag in ("c-pt", "cx-pt")]
        if points:
            is_number = level.tag in ("c-numCache", "c-numLit") or level.get("formatCode") is not None
            code = level.findtext("c-formatCode") or level.get("formatCode") or ""
            columns.append({})
            for point in points:
                text = one_line(point.findtext("c-v") or point.text or "")
                columns[-1][whole_number(point.get("idx", ""))] = shown_number(text, code) if is_number else text
    if element is not None and not columns:
        return {0: text} if (text := one_line(element.findtext("c-v", ""))) else {}
    labels = columns.pop(0) if columns else {}
    for outer in columns:
        above = ""
        for at in sorted(labels):
            above = outer.get(at, above)
            labels[at] = f"{above} {labels[at]}".strip()
    return labels
