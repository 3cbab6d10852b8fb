"""One HTML file that needs nothing else: styles, script and data are inside, and it may load nothing.

The script can run only because the file names its hash, so no text of a document can become a program. Data for the
script is in a block that browsers do not execute.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import filled_lines, json_object
from ragembed.files import NotRegularFileError, open_regular, replace_file
from ragembed.html_elements import OWN_PAGE, Child, as_html, element, table
from ragembed.printable import printable

_STATIC = files("ragembed.reports").joinpath("static")


def check_output(file: Path) -> None:
    """Raise :class:`ConfigError` if ``file`` cannot be written, or if it exists and ragembed did not write it."""
    if file.is_symlink():
        raise ConfigError(f"the page {file} is a symbolic link: expected a new file, or a page that ragembed wrote")
    if not file.parent.is_dir():
        raise ConfigError(f"no folder at {file.parent}: create it first, or write the page to another folder")
    try:
        with open_regular(file) as stream:
            is_own = stream.read(len(OWN_PAGE)) == OWN_PAGE
    except FileNotFoundError:
        if not os.access(file.parent, os.W_OK):
            raise ConfigError(f"the folder {file.parent} is not writable: write the page to another folder") from None
        return
    except (NotRegularFileError, OSError) as error:
        raise ConfigError(f"cannot read {file}: {error.strerror or error}; write the page to another file") from error
    if not is_own:
        raise ConfigError(f"{file} exists, and ragembed did not write it: move it away, or name another file")


def write_page(file: Path, page: bytes) -> None:
    """Write a page that :func:`page` returned, atomically; raises as :func:`check_output` does."""
    check_output(file)
    replace_file(file, page)


def page(title: str, about: str, sections: Sequence[Element], data: Any = None) -> bytes:
    """Return a page with a title, a line about it, sections with ids, and JSON ``data`` for the script, or None."""
    _distinguish(sections)
    style = static_file("report.css")
    script = None if data is None else static_file("report.js")
    policy = f"default-src 'none'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"
    policy += "" if script is None else f"; script-src '{_hash(script)}'"
    links = [element("a", part.findtext("h2", ""), href=f"#{part.get('id')}") for part in sections]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", style),
    )
    nav = element("nav", *links, aria_label="Sections") if len(links) > 1 else None
    inert = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")  # ends no element
    body = element(
        "body",
        element("header", element("h1", title), element("p", about), nav),
        element("main", *sections),
        None if data is None else element("script", inert, type="application/json", id="map-data"),
        None if script is None else element("script", script),
    )
    return OWN_PAGE + as_html(element("html", head, body, lang="en")) + b"\n"


def _distinguish(sections: Sequence[Element]) -> None:
    """Give sections with the same id, such as those of two evaluations, different ones."""
    seen: Counter[str] = Counter()
    for made in sections:
        name = str(made.get("id"))
        seen[name] += 1
        if seen[name] > 1:
            made.set("id", f"{name}-{seen[name]}")
            made.set("aria-labelledby", f"{name}-{seen[name]}-heading")
            made[0].set("id", f"{name}-{seen[name]}-heading")


def section(name: str, heading: str, *children: Child) -> Element:
    """Return a section whose id is ``name``."""
    return element(
        "section", element("h2", heading, id=f"{name}-heading"), *children, id=name, aria_labelledby=f"{name}-heading"
    )


def data_table(label: str, head: Sequence[str], rows: Iterable[Sequence[Child]], caption: str | None = None) -> Element:
    """Return a table that :func:`scrolled` wraps."""
    return scrolled(table(head, rows, caption), label)


def scrolled(wide: Element, label: str) -> Element:
    """Return a table that scrolls sideways in a narrow window, with the keyboard too."""
    return element("div", wide, class_="scroll", tabindex="0", role="region", aria_label=f"Table: {label}")


def bar(share: float, most: float = 1.0) -> Element:
    """Return a bar for a value beside its number, which is the text alternative."""
    width = f"{max(0.0, min(100.0 * share / most, 100.0)) if most > 0 else 0.0:.1f}"
    drawn = element("rect", x="0", y="1", width=width, height="8", class_="more")
    return element("svg", drawn, viewBox="0 0 100 10", width="100", height="10", aria_hidden="true")


def encoded(data: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(data).decode("ascii")


def shortened(text: str, most: int) -> str:
    """Return the beginning of a text, of at most ``most`` characters."""
    text = printable(text)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def static_file(name: str) -> str:
    """Return a file of the package: a style, a script, or markup without texts of documents."""
    return _STATIC.joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


_ABOUT = ("schema_version", "task", "collection", "name", "config", "queries", "difference_to_first")
_PER_CENT = 100.0
_LONGEST = 120
_KEYS = ("query", "question", "text")


def evaluation_page(task: str, results: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the page of an evaluation; ``results`` are the objects that ``ragembed eval … --json`` prints."""
    collections = ", ".join(dict.fromkeys(str(result["collection"]) for result in results))
    return page(f"Evaluation: {task}", collections, [evaluation_section(results, "Results")])


def read_results(path: Path) -> Element:
    """Return the section about ``--json`` of ``eval`` or ``doctor``; raises :class:`ConfigError` for other files."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if "findings" in content:
            return findings_section(content)
        return evaluation_section(content.get("results") or [content])
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the results in {path}: {error}; expected a JSON file") from error
    except (LookupError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} holds no results: expected the output of 'ragembed eval' or 'doctor' with --json"
        ) from error


# Evaluations


def evaluation_section(results: Sequence[Mapping[str, Any]], heading: str | None = None) -> Element:
    """Return the section about an evaluation; its heading is that of the page if the page has nothing else."""
    task = str(results[0]["task"])
    parts: list[Child] = []
    for collection in dict.fromkeys(str(result["collection"]) for result in results):
        of_collection = [result for result in results if result["collection"] == collection]
        queries = of_collection[0].get("queries")
        parts.append(element("h3", collection + ("" if queries is None else f", {queries:,} queries")))
        if "differences" in of_collection[0]:
            parts += [part for result in of_collection for part in _compared(result)]
        else:
            parts += _measured(of_collection)
    return section(f"evaluation-{task}", heading or f"Evaluation: {task}", *parts)


def _measured(results: Sequence[Mapping[str, Any]]) -> Iterator[Child]:
    """Yield the table of some systems or settings on one collection."""
    names = [
        name
        for name, value in next((result for result in results if "undefined" not in result), {}).items()
        if name not in _ABOUT and isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    if not names:
        yield element("p", "The measure is not defined for any of these results.")
        return
    headline = names[0]
    most = max(_PER_CENT if abs(float(result[headline] or 0.0)) > 1 else 1.0 for result in results)
    with_difference = any("difference_to_first" in result for result in results)
    widest = _widest(result["difference_to_first"] for result in results if "difference_to_first" in result)
    rows: list[list[Child]] = []
    for label, result in zip(_labels(results), results, strict=True):
        numbers = [_number(result.get(name)) for name in names]
        row: list[Child] = [label, *numbers, bar(float(result[headline] or 0.0), most)]
        if with_difference:
            row += _difference(result.get("difference_to_first"), widest)
        rows.append(row)
    head = ["", *names, ""] + (["Difference of " + headline, "95 % interval", "p", ""] if with_difference else [])
    yield data_table("Results", head, rows, f"Bars show {headline}")


def _compared(result: Mapping[str, Any]) -> Iterator[Child]:
    """Yield the comparison of two systems."""
    a, b = result["a"], result["b"]
    widest = _widest(result["differences"].values())
    rows: list[list[Child]] = [
        [name, _number(a[name]), _number(b[name]), *_difference(difference, widest)]
        for name, difference in result["differences"].items()
    ]
    yield element("p", f"A is {a['name']}, and B is {b['name']}. An interval without 0 is a significant difference.")
    yield data_table("Comparison", ("Measure", "A", "B", "B − A", "95 % interval", "p", ""), rows)


def _labels(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the name of each result, and those settings of its embedder that differ between results."""
    configs = [result.get("config") or {} for result in results]
    differ = [name for name in configs[0] if len({json.dumps(config.get(name)) for config in configs}) > 1]
    labels = []
    for result, config in zip(results, configs, strict=True):
        values = {name: config.get(name) for name in differ}
        shown = {name: ",".join(map(str, v)) or "none" if isinstance(v, list) else v for name, v in values.items()}
        parts = [str(result["name"]), *(f"{name} {value}" for name, value in shown.items())]
        labels.append(shortened(", ".join(parts), _LONGEST))
    return labels


def _number(value: float | None) -> str:
    if value is None:
        return "undefined"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.1f}" if abs(value) > 1 else f"{value:.3f}"


# Differences


def _widest(differences: Any) -> float:
    """Return the largest absolute value of the ends of some intervals, for the scale of their drawings."""
    ends = [abs(float(end)) for difference in differences for end in (difference["low"], difference["high"])]
    return max(ends, default=0.0) or 1.0


def _difference(difference: Mapping[str, Any] | None, widest: float) -> list[Child]:
    """Return the cells of a difference: value, interval, p-value and drawing."""
    if difference is None:
        return ["–", "", "", None]
    value, low, high = (float(difference[name]) for name in ("difference", "low", "high"))
    return [
        f"{value:+.1f}",
        f"{low:+.1f} to {high:+.1f}",
        f"{float(difference['p_value']):.3f}",
        _interval(value, low, high, widest),
    ]


def _interval(value: float, low: float, high: float, widest: float) -> Element:
    """Return a drawing of an interval around its value; the numbers beside it are its text alternative."""

    def at(number: float) -> str:
        return f"{70 + 62 * number / widest:.1f}"

    kind = "more" if low > 0 else "less" if high < 0 else "axis"
    return element(
        "svg",
        element("line", x1="70", x2="70", y1="0", y2="14", class_="axis"),
        element("line", x1=at(low), x2=at(high), y1="7", y2="7", class_="interval"),
        element("circle", cx=at(value), cy="7", r="4", class_=kind),
        viewBox="0 0 140 14",
        width="140",
        height="14",
        aria_hidden="true",
    )


# Diagnoses


def findings_section(diagnosis: Mapping[str, Any]) -> Element:
    """Return the section about the findings of ``ragembed doctor``."""
    rows: list[list[Child]] = [
        [str(item["title"]), str(item["severity"]), str(item["detail"]), element("code", str(item["command"]))]
        for item in diagnosis["findings"]
    ]
    if not rows:
        return section("findings", "Findings", element("p", "The doctor found nothing to do."))
    head = ("Finding", "Severity", "Why it matters", "Command")
    return section("findings", "Findings", data_table("Findings", head, rows))


# Queries


def read_queries(path: Path) -> list[str]:
    """Return the queries of a file, each once, in order.

    A line is a query, and text after a tab is ignored; or a JSON object with the key ``query``.
    """
    return list(dict.fromkeys(_query(path, number, line) for number, line in filled_lines(path)))


def _query(path: Path, number: int, line: str) -> str:
    query = line.partition("\t")[0].strip()
    if line.lstrip().startswith("{"):
        fields = json_object(path, number, line)
        query = next((fields[key].strip() for key in _KEYS if isinstance(fields.get(key), str)), "")
    if not query:
        raise ConfigError(f"{path}, line {number} has no query: expected a text, or a JSON object with the key query")
    return query
