"""What a report reads from files: queries, and the results of evaluations and diagnoses, which become sections."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from ragembed.errors import ConfigError
from ragembed.html_elements import Child, element
from ragembed.reports.page import bar, data_table, page, section, shortened

_ABOUT = ("schema_version", "task", "collection", "name", "config", "queries", "difference_to_first")
_PER_CENT = 100.0
_LONGEST = 120
_KEYS = ("query", "question", "text")


def evaluation_page(task: str, results: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the page of an evaluation; ``results`` are the objects that ``ragembed eval … --json`` prints."""
    collections = ", ".join(dict.fromkeys(str(each["collection"]) for each in results))
    return page(f"Evaluation: {task}", collections, [evaluation_section(results, "Results")])


def read_results(path: Path) -> Element:
    """Return the section about ``--json`` of ``eval`` or ``doctor``; raises :class:`ConfigError` for other files."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if "findings" in found:
            return findings_section(found)
        return evaluation_section(found.get("results") or [found])
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
    for collection in dict.fromkeys(str(each["collection"]) for each in results):
        here = [each for each in results if each["collection"] == collection]
        queries = here[0].get("queries")
        parts.append(element("h3", collection + ("" if queries is None else f", {queries:,} queries")))
        if "differences" in here[0]:
            parts += [part for each in here for part in _compared(each)]
        else:
            parts += _measured(here)
    return section(f"evaluation-{task}", heading or f"Evaluation: {task}", *parts)


def _measured(results: Sequence[Mapping[str, Any]]) -> Iterator[Child]:
    """Yield the table of some systems or settings on one collection."""
    names = [
        name
        for name, value in next((each for each in results if "undefined" not in each), {}).items()
        if name not in _ABOUT and isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    if not names:
        yield element("p", "The measure is not defined for any of these results.")
        return
    headline = names[0]
    most = max(_PER_CENT if abs(float(each[headline] or 0.0)) > 1 else 1.0 for each in results)
    with_difference = any("difference_to_first" in each for each in results)
    widest = _widest(each["difference_to_first"] for each in results if "difference_to_first" in each)
    rows: list[list[Child]] = []
    for label, each in zip(_labels(results), results, strict=True):
        numbers = [_number(each.get(name)) for name in names]
        row: list[Child] = [label, *numbers, bar(float(each[headline] or 0.0), most)]
        if with_difference:
            row += _difference(each.get("difference_to_first"), widest)
        rows.append(row)
    head = ["", *names, ""] + (["Difference of " + headline, "95 % interval", "p", ""] if with_difference else [])
    yield data_table("Results", head, rows, f"Bars show {headline}")


def _compared(result: Mapping[str, Any]) -> Iterator[Child]:
    """Yield the comparison of two systems."""
    one, other = result["a"], result["b"]
    widest = _widest(result["differences"].values())
    rows: list[list[Child]] = [
        [name, _number(one[name]), _number(other[name]), *_difference(found, widest)]
        for name, found in result["differences"].items()
    ]
    yield element(
        "p", f"A is {one['name']}, and B is {other['name']}. An interval without 0 is a significant difference."
    )
    yield data_table("Comparison", ("Measure", "A", "B", "B − A", "95 % interval", "p", ""), rows)


def _labels(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the name of each result, and those settings of its embedder that differ between results."""
    configs = [each.get("config") or {} for each in results]
    differ = [name for name in configs[0] if len({json.dumps(config.get(name)) for config in configs}) > 1]
    return [
        shortened(
            ", ".join([str(each["name"]), *(f"{name} {_setting(config.get(name))}" for name in differ)]), _LONGEST
        )
        for each, config in zip(results, configs, strict=True)
    ]


def _setting(value: Any) -> str:
    return ",".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _number(value: float | None) -> str:
    if value is None:
        return "undefined"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.1f}" if abs(value) > 1 else f"{value:.3f}"


# Differences


def _widest(differences: Any) -> float:
    """Return the largest absolute value of the ends of some intervals, for the scale of their drawings."""
    ends = [abs(float(end)) for each in differences for end in (each["low"], each["high"])]
    return max(ends, default=0.0) or 1.0


def _difference(found: Mapping[str, Any] | None, widest: float) -> list[Child]:
    """Return the cells of a difference: value, interval, p-value and drawing."""
    if found is None:
        return ["–", "", "", None]
    value, low, high = (float(found[name]) for name in ("difference", "low", "high"))
    return [
        f"{value:+.1f}",
        f"{low:+.1f} to {high:+.1f}",
        f"{float(found['p_value']):.3f}",
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
        [str(each["title"]), str(each["severity"]), str(each["detail"]), element("code", str(each["command"]))]
        for each in diagnosis["findings"]
    ]
    if not rows:
        return section("findings", "Findings", element("p", "The doctor found nothing to do."))
    head = ("Finding", "Severity", "Why it matters", "Command")
    return section("findings", "Findings", data_table("Findings", head, rows))


# Queries


def read_queries(path: Path) -> list[str]:
    """Return the queries of a file, each once, in order.

    A line is a query, and text after a tab is ignored; or a JSON object with the key ``query``. Blank lines are
    skipped. Raises :class:`ConfigError` with the line number if a line is invalid or the file cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the queries in {path}: {error}; expected a UTF-8 text file") from error
    found = [_query(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise ConfigError(f"{path} has no queries: expected one per line")
    return list(dict.fromkeys(found))


def _query(line: str, place: str) -> str:
    if not line.lstrip().startswith("{"):
        query = line.partition("\t")[0].strip()
    else:
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{place} is not a valid JSON object: {error}") from None
        query = next((fields[key].strip() for key in _KEYS if isinstance(fields.get(key), str)), "")
    if not query:
        raise ConfigError(f"{place} has no query: expected a text, or a JSON object with the key query")
    return query
