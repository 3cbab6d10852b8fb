"""Properties of a document: what its front matter, its fields or its file says about it, such as tags and an author.

Properties become metadata, which filters select by. YAML is read by PyYAML, which huggingface-hub needs, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime, time
from functools import cache
from itertools import islice
from math import isfinite
from typing import Any
from xml.etree.ElementTree import Element

from ragembed.documents.model import Block, ParsedDocument
from ragembed.documents.readers.structure import one_line, well_formed
from ragembed.files import parse_toml

MOST_VALUES, LONGEST_VALUE, DEEPEST = 1_000, 1_000, 6
"""Number of values of a document, characters of each, and levels of objects in them, that are kept."""
LARGEST_FRONT_MATTER = 100_000
LISTS = frozenset(("tags", "aliases", "keywords"))
"""Properties that are lists, also if only one value or a text with commas is given."""
NAMES = {"tag": "tags", "alias": "aliases", "keyword": "keywords", "roam_tags": "tags", "roam_aliases": "aliases"}
SEARCHED = ("author", "authors", "subject", "description", "keywords", "category", "company", "comments")
"""Properties beside the text whose words are searched."""

CORE = {
    "initial-creator": "author",
    "creator": "author",
    "keyword": "keywords",
    "creation-date": "created",
    "date": "modified",
    **{name: name for name in ("title", "subject", "description", "keywords", "category", "created", "modified")},
}
"""Elements of Dublin Core, Office Open XML and OpenDocument, with the names of their properties."""
OF_PROGRAMS = re.compile(
    r"generated (?:by|using|with) .*|python-(?:docx|pptx)|openpyxl|xlsxwriter|html-to-docx|unknown|un-named|"
    r"\(?(?:anonymous|unspecified)\)?",
    re.IGNORECASE,
)
"""Authors and descriptions that libraries write."""
KEY = re.compile(r"(?P<key>[^\W_][\w .\t-]{0,60}?)(?:::?|=)(?:[ \t]+(?P<value>.*)|$)")
LEADING_KEYS = re.compile(
    r"(?:title|date|created|authors?|tags|slug|category|categories|keywords|summary|status):|[\w-]+:: ", re.I
)
"""The first line of front matter without fences, as in MultiMarkdown, Pelican and Logseq."""
_YAML_VALUES = {
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(?:0|[1-9]\d{0,17})",
    "float": r"[-+]?(?:0|[1-9]\d*)?\.\d+(?:[eE][-+]?\d+)?",
}


def plain(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Return properties as JSON values: dates as ISO texts, tags and keywords as lists, without what is empty."""
    room = MOST_VALUES

    def value_of(value: Any, depth: int) -> Any:
        nonlocal room
        room -= 1
        if room < 0 or depth > DEEPEST:
            return None
        if isinstance(value, Mapping):
            items = [(one_line(well_formed(str(key))), inner) for key, inner in islice(value.items(), MOST_VALUES)]
            pairs = ((key, value_of(inner, depth + 1)) for key, inner in items if key and not key.startswith("$"))
            return {key: inner for key, inner in pairs if _is_given(inner)}
        if isinstance(value, (list, tuple, set)):
            return [inner for item in islice(value, MOST_VALUES) if _is_given(inner := value_of(item, depth + 1))]
        if isinstance(value, (date, datetime, time)):
            return value.isoformat()
        if isinstance(value, bool) or (isinstance(value, (int, float)) and isfinite(value) and abs(value) < 2**63):
            return value
        return None if value is None else one_line(well_formed(str(value)))[:LONGEST_VALUE]

    properties: dict[str, Any] = value_of(values, 0)
    for name in list(properties):
        key = NAMES.get(name.lower(), name.lower())
        if key in LISTS:
            properties = merged({key: _as_list(properties.pop(name), key)}, properties)
    return properties


def _is_given(value: Any) -> bool:
    return value is not None and value not in ("", [], {})


def _as_list(value: Any, key: str) -> list[Any]:
    """Return the values of a list that may be written as a text; tags have no spaces and lose their ``#``."""
    if isinstance(value, str) and value.count('"') > 1:
        value = [quoted or word for quoted, word in re.findall(r'"([^"]+)"|([^\s"]+)', value)]
    elif isinstance(value, str):
        value = re.split(r"[,;]", value) if key != "tags" or "," in value else value.split()
    items = value if isinstance(value, list) else [value]
    stripped = (item.strip().lstrip("#" if key == "tags" else "") if isinstance(item, str) else item for item in items)
    return list(dict.fromkeys(item for item in stripped if _is_given(item) and not isinstance(item, (dict, list))))


def merged(first: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return all properties; the first value counts, and lists are joined."""
    properties = {**first, **{key: value for key, value in more.items() if key not in first}}
    for key, value in first.items():
        if isinstance(value, list) and isinstance(added := more.get(key), list):
            properties[key] = value + [item for item in added if item not in value]
    return properties


def front_matter(lines: list[str], warn: Callable[[str], None]) -> tuple[int, dict[str, Any]]:
    """Return the 0-based line where the body starts, and the properties above it: in YAML, TOML or ``key: value``."""
    fence = lines[0].rstrip()
    if fence in ("---", "+++"):
        ends = (fence, "...") if fence == "---" else (fence,)
        stop = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() in ends), 0)
        first = next((line for line in lines[1:stop] if line.strip() and not line.startswith("#")), "")
        if not (KEY.match(first) or (fence == "+++" and first.startswith("["))):
            return 0, {}
        return stop + 1, plain(_parsed("\n".join(lines[1:stop]), fence, warn))
    return key_value_block(lines)


def key_value_block(lines: list[str]) -> tuple[int, dict[str, Any]]:
    """Return the end of the lines ``key: value`` at the top, and their properties; none if they may be prose."""
    first = lines[0].rstrip()
    if LEADING_KEYS.match(first) and not first.endswith(":"):
        stop = next((n for n, line in enumerate(lines) if not line.strip()), len(lines))
        pairs = dict(key_values(lines[:stop]))
        if (len(pairs) > 1 or "::" in first) and all(KEY.match(line) or line[:1] in " \t" for line in lines[:stop]):
            return stop, plain({key.lower(): value for key, value in pairs.items()})
    return 0, {}


def _parsed(text: str, fence: str, warn: Callable[[str], None]) -> Mapping[Any, Any]:
    """Return the values of YAML or TOML. The lines of a text that is neither are keys and values."""
    if len(text) <= LARGEST_FRONT_MATTER:
        try:
            values = _yaml(text) if fence == "---" else parse_toml(text)
        except ValueError:
            kind = "YAML" if fence == "---" else "TOML"
            warn(f"its front matter is no valid {kind}, so each line is read as key: value")
        else:
            nested = values.get("taxonomies") if isinstance(values, Mapping) else None  # of Zola
            return {**(nested if isinstance(nested, Mapping) else {}), **values} if isinstance(values, Mapping) else {}
    return dict(key_values(text.split("\n")))


def key_values(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of lines ``key: value`` or ``key = value``; indented lines continue a value."""
    key, parts = "", [""]
    for line in lines:
        if match := KEY.match(line):
            yield from [(key, " ".join(parts))] if key else []
            key, parts = match["key"].strip(), [_unquoted((match["value"] or "").strip())]
        else:
            parts.append(line.strip().removeprefix("- "))
    yield from [(key, " ".join(parts))] if key else []


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


@cache
def _yaml_loader() -> Any:
    """Return a safe loader of YAML 1.2, in which ``no`` is a text, and so are ``12:30`` and ``007``."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: Any = type("Loader", (base,), {})
    loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in rules if tag.rpartition(":")[2] not in _YAML_VALUES]
        for first, rules in base.yaml_implicit_resolvers.items()
    }
    for kind, pattern in _YAML_VALUES.items():
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{pattern})$"), None)
    return loader


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.load(text, _yaml_loader())  # noqa: S506  a safe loader
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(getattr(error, "problem", None) or error) from error


def core_properties(roots: Iterable[Element]) -> dict[str, str]:
    """Return the properties of an Office or OpenDocument file, from the elements of its part with the properties."""
    found: dict[str, str] = {}
    for root in roots:
        values: dict[str, list[str]] = {}
        for element in root.iter():
            local = element.tag.rpartition("}")[2].removeprefix("dc-")
            values.setdefault(local, []).append(one_line("".join(element.itertext())))
        for tag, name in CORE.items():
            texts = values.get(tag, [])
            if (text := ", ".join(filter(None, texts))) and not OF_PROGRAMS.fullmatch(text):
                found.setdefault(name, text)
    return found


def with_metadata(documents: Iterable[ParsedDocument], properties: Mapping[Any, Any]) -> Iterator[ParsedDocument]:
    """Yield the documents of the rows of a file with its properties as metadata, unless a column has the name."""
    kept = plain(properties)
    for document in documents:
        yield replace(document, metadata={**kept, **document.metadata}) if kept else document


def with_properties(document: ParsedDocument, properties: Mapping[Any, Any]) -> ParsedDocument:
    """Return the document with properties as metadata, and with a first block of those that its text may lack."""
    kept = plain(properties)
    if not kept:
        return document
    lines = []
    for key in SEARCHED:
        value = kept.get(key, "")
        words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        if words and words != document.title and words not in document.text:
            lines.append(f"{key}: {words}")
    document = replace(document, metadata={**kept, **document.metadata})
    if not lines or not document.blocks:
        return document
    above = "\n".join(lines)
    shift, added = len(above) + 2, len(lines) + 1
    blocks = [replace(block, start=block.start + shift, end=block.end + shift) for block in document.blocks]
    places: dict[str, Any] = {
        name: [*numbers[:1] * added, *numbers] if (numbers := getattr(document, name)) else numbers
        for name in ("line_numbers", "page_numbers")
    }
    text = f"{above}\n\n{document.text}"
    return replace(document, text=text, blocks=[Block(0, len(above), "table"), *blocks], **places)
