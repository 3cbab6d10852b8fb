"""Write superscripts, subscripts and formulas as text, so that no number changes: ``10^6``, ``F/A``, ``sqrt(k)``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement

RAISED, LOWERED, LEVEL = "\x0e", "\x0f", "\x10"
"""Marks before raised or lowered text, and after it, until :func:`scripts` replaces them."""
_INNER = f"[^{RAISED}{LOWERED}{LEVEL}]*{LEVEL}"
SCRIPT = re.compile(rf"([{RAISED}{LOWERED}]){_INNER}(?:\1{_INNER})*")
MARKS = re.compile(f"[{RAISED}{LOWERED}{LEVEL}]")
WITHOUT_MARKS = dict.fromkeys(map(ord, (RAISED, LOWERED, LEVEL)))
DEEPEST_SCRIPT, DEEPEST_FORMULA = 4, 100
PLAIN = re.compile(r"[+\-−–]?(?:\d[\d.,]*|[^\W\d]+)['′*]*[+\-−–]?|[^\w\s]|\w*\([^()]*\)")
"""Text that needs no parentheses, as an exponent or in a fraction."""
ORDINALS = frozenset("aeoªº")


SYMBOL_FONT = "Symbol"
_SYMBOLS = dict(
    zip(
        (*range(0x22, 0x7F), *range(0xA1, 0xE5), *range(0xF1, 0xF3)),
        "∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"
        "ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™〉∫",
        strict=True,
    )
)
_SYMBOLS |= {0xF000 + code: sign for code, sign in _SYMBOLS.items()}


def symbols(text: str) -> str:
    """Return text in the font Symbol, whose codes are those of other characters, in Unicode."""
    return text.translate(_SYMBOLS)


def scripts(text: str) -> str:
    """Replace the marks around raised and lowered text: ``10^6``, ``x^(n+1)``, ``H2O``, ``1st``, ``3 1/2``, ``10_2``.

    Raised letters and signs of abbreviations and notes, and lowered text that does not continue a number, are joined.
    """
    if not MARKS.search(text):
        return text
    for _ in range(DEEPEST_SCRIPT):
        text = SCRIPT.sub(_script, text)
        if not MARKS.search(text):
            return text
    return text.translate(WITHOUT_MARKS)


def _script(match: re.Match[str]) -> str:
    start, end = match.span()
    inner = match[0].translate(WITHOUT_MARKS).strip()
    above = match.string[max(0, start - 8) : start].translate(WITHOUT_MARKS)
    before = above[-1:]
    after = match.string[end : end + 1]
    if not inner or not before or (before.isspace() and not above.rstrip()[-1:].isdigit()):
        return inner
    apart = " " if after.isalnum() else ""
    if match[0][0] == LOWERED:
        if before in "/⁄" or not inner[0].isalnum():
            return inner
        if match.string[start - 1] == LEVEL:
            return f"_{_group(inner)}{apart}"
        if (before.isdigit() and inner[0].isdigit()) or (inner[-1].isdigit() and after.isdigit()):
            return f"_{inner}{apart}"
        return inner if inner.isalnum() else f"_({inner})"
    if after in ("/", "⁄") and inner.isdecimal():
        return f" {inner}" if before.isalnum() else inner
    is_ordinal = before.isdigit() and inner in ORDINALS
    if is_ordinal or (len(inner) > 1 and inner.isalpha()) or not (inner[0].isalnum() or inner[0] in "+-−–("):
        return inner
    return f"^{_group(inner)}{apart}"


def _group(text: str) -> str:
    return text if PLAIN.fullmatch(text) else f"({text})"


STRUCTURES: dict[str, tuple[str, ...]] = {
    "mfrac": ("num", "den"), "msup": ("e", "sup"), "msub": ("e", "sub"), "msubsup": ("e", "sub", "sup"),
    "mover": ("e", "sup"), "munder": ("e", "sub"), "munderover": ("e", "sub", "sup"), "mroot": ("e", "deg"),
    "limLow": ("e", "sub"), "limUpp": ("e", "sup"),
    **dict.fromkeys(("f", "sSup", "sSub", "sSubSup", "sPre", "rad", "func", "acc", "nary"), ()),
}  # fmt: skip
"""Elements with the meanings of their children, in the words of Office. There, the children have these names."""
LISTS = frozenset({"eqArr", "m", "mtable", "oMathPara"})
RELATIONS = "=<>≤≥≈≡∈→"
RUNS = frozenset({"r", "t", "mi", "mn", "mtext"})
UNSEEN = frozenset({"annotation", "annotation-xml", "mphantom", "mprescripts", "none"})
OPERATORS = dict.fromkeys(range(0x2062, 0x2065), " ")
"""Characters that are not shown, for a product, list or sum."""
APPLIED = "\N{FUNCTION APPLICATION}"


def formula(element: Element) -> str:
    """Return a formula in MathML or in the markup of Office (OMML) as text on one line."""
    text = _write(element).replace(f"{APPLIED}(", "(").replace(APPLIED, " ")
    return " ".join(text.split())


class FormulaBuilder(list[Element]):
    """Builds the formulas (MathML) in a page or document from its tags. It is a list of the open elements."""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Begin a formula, or an element of one."""
        if not self:
            self.append(Element(tag, attributes))
        elif len(self) < DEEPEST_FORMULA:
            self.append(SubElement(self[-1], tag, attributes))

    def add(self, text: str) -> None:
        """Add a text to the innermost element."""
        self[-1].text = (self[-1].text or "") + text

    def end(self, tag: str) -> str:
        """End an element. At the end of the formula, return its text."""
        if any(element.tag == tag for element in self):
            while (element := self.pop()).tag != tag:
                pass
            if not self:
                return formula(element)
        return ""


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2].removeprefix("math-").removeprefix("m-")


def _write(element: Element) -> str:
    """Return the text of an element. Properties, whose names end with ``Pr`` in Office, have none."""
    tag = _local(element)
    if not len(element):
        return (element.text or "").translate(OPERATORS)
    children = [child for child in element if not _local(child).endswith("Pr") and _local(child) not in UNSEEN]
    if tag in LISTS:
        return "; ".join(filter(None, map(_write, children)))
    if tag in ("mr", "mtr"):
        cells = [cell for child in children if (cell := _write(child).strip())]
        return "".join(f"{' ' if cell[0] in RELATIONS else ', '}{cell}" for cell in cells).removeprefix(", ")
    if tag in ("d", "mfenced"):
        opening, separator, closing = _delimiters(element)
        return f"{opening}{separator.join(map(_write, children))}{closing}"
    if tag in STRUCTURES:
        names = STRUCTURES[tag] or tuple(map(_local, children))
        parts = {name: _write(child).strip() for name, child in zip(names, children, strict=False)}
        if "num" not in parts:
            return _with_scripts(tag, element, parts)
        has_bar = _property(element, "type", "bar") != "noBar" and element.get("linethickness", "1")[:1] != "0"
        return f"{_group(parts['num'])}{'/' if has_bar else ' over '}{_group(parts.get('den', ''))}"
    text = _joined(children)
    return f"sqrt({text})" if tag == "msqrt" else text


def _with_scripts(tag: str, element: Element, parts: dict[str, str]) -> str:
    """Return the text of a root, a function, or something with a text above it, below it or in front of it."""
    body = parts.get("e", "")
    if tag in ("rad", "mroot"):
        degree = parts.get("deg", "")
        return f"root({degree}, {body})" if degree not in ("", "2") else f"sqrt({body})"
    if tag == "func":
        return f"{parts.get('fName', '')} {body}"
    if tag == "acc":
        return body + _property(element, "chr", "\u0302")
    added = "".join(f"{mark}{_group(parts[name])}" for name, mark in (("sub", "_"), ("sup", "^")) if parts.get(name))
    if tag == "nary":
        return f"{_property(element, 'chr', '∫')}{added} {body}"
    if tag == "sPre":
        return f"{added} {body}"
    if tag in ("mover", "munder") and not any(map(str.isalnum, added)):
        return body  # an accent
    return (_group(body) if body else "") + added


def _joined(children: Iterable[Element]) -> str:
    """Join the texts of elements, with a space where a number or a structure would run into its neighbour."""
    text, above = "", ""
    for child in children:
        tag, part = _local(child), _write(child)
        if text[-1:].isalnum() and part[:1].isalnum():
            of_digits = text[-1].isdigit() and part[0].isdigit() and tag not in ("r", "t")
            text += " " if of_digits or above not in RUNS or tag not in RUNS else ""
        text, above = text + part, tag if part else above
    return text


def _property(element: Element, name: str, default: str) -> str:
    for properties in element:
        if _local(properties).endswith("Pr"):
            for child in properties:
                if _local(child) == name:
                    return next((value for key, value in child.items() if key.rpartition("}")[2] == "val"), "")
    return default


def _delimiters(element: Element) -> tuple[str, str, str]:
    if _local(element) == "mfenced":
        separators = element.get("separators", ",")
        return element.get("open", "("), f"{separators[:1]} " if separators else "", element.get("close", ")")
    return _property(element, "begChr", "("), _property(element, "sepChr", "|"), _property(element, "endChr", ")")
