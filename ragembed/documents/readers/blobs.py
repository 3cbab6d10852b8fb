"""Encoded data in texts, such as fonts and pictures in base64: nobody reads or searches it, so ``…`` replaces it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

LEFT_OUT = "…"
SHORTEST_RUN, SHORTEST_HEX = 200, 320
"""Characters of data on one line from which they are left out. Keys, tokens and hashes are shorter."""
SHORTEST_LINE, LONGEST_LINE, FEWEST_LINES, FEWEST_OTHER_LINES = 56, 500, 4, 10
"""Shortest and longest line of data that is cut into lines, and number of such lines: in base64, and in other codes."""

_DATA_URI = re.compile(r"(data:[\w.+/-]*(?:;[\w.+=-]+)*(?:,|%2C))(?:[^\s\"'<>()\\]|\\/){64,}")
_QUOTED_SVG = re.compile(r"""(["'])(data:image/svg[\w.+;=-]*,)(?:(?!\1)[^\n]){64,}""")
_RUN = re.compile(
    rf"\\(?:u[\da-fA-F]{{4}}|.)|(?:(?<![A-Za-z\d+/_-])|(?<=\\[a-z])|(?<=\\u[\da-fA-F]{{4}}))"
    rf"(?:[A-Za-z\d+/_-]|\\/){{{SHORTEST_RUN},}}={{0,2}}"
)
_OUTLINE = re.compile(r"""=(["'])[Mm][ \d.,+-][MmZzLlHhVvCcSsQqTtAaEe\s\d.,+-]{64,}\1""")
_BYTES = re.compile(r"0x[\da-fA-F]{1,2}[,;]\s{0,20}(?:0x[\da-fA-F]{1,2}[,;]?\s{0,20}){48,}")
_ESCAPES = re.compile(r"\\x[\da-fA-F]{2}(?:\\x[\da-fA-F]{2}){32,}")
"""Outlines of pictures, as in SVG, and bytes in source code."""
_PART = re.compile(r"""([\s#*>(]*(?:[rbRB]{0,2}["'`])?)([!-~]*?)((?:\\n)?["'`][\s,;)+\\]*|[\s\\]*)""")
"""A line of data, between what quotes it in source code or JSON."""
_BASE64 = re.compile(r"[A-Za-z\d+/_-]+")
_LAST_BASE64 = re.compile(r"(?!(?:[A-Za-z][a-z]*|[A-Z]+)\Z)[A-Za-z\d+/_-]+={0,2}")
"""The last line of data in base64: no word."""


_WORDS = re.compile(
    r"[^\W\d_]*[^\x00-\x7f\W\d_][^\W\d_]*|(?<![a-z])[A-Z]?[a-z]{2,}(?!\d)|(?<![A-Za-z\d])[A-Z]{2,}(?![a-z\d])"
)
LEAST_WORDS = 0.3
"""Share of the characters of a text that belong to words from which it can be searched: base64 has 0.25, code 0.7."""


def has_few_words(text: str) -> bool:
    """Return whether hardly any characters of a text belong to words, as in encoded data, coordinates and numbers."""
    return sum(map(len, _WORDS.findall(text))) < LEAST_WORDS * sum(map(len, text.split()))


def without_blobs(text: str) -> str:
    """Return ``text`` with ``…`` in place of ``data:`` URIs and long runs of base64. The lines stay the same."""
    if "data:" in text:
        text = _DATA_URI.sub(rf"\1{LEFT_OUT}", text)
        if "data:image/svg" in text:
            text = _QUOTED_SVG.sub(rf"\1\2{LEFT_OUT}", text)
    if '="' in text:
        text = _OUTLINE.sub(lambda found: f"={found[1]}{_same_lines(found)}{found[1]}", text)
    if ", 0x" in text:
        text = _BYTES.sub(_same_lines, text)
    lines = text.split("\n")
    long = [
        number
        for number, line in enumerate(lines)
        if len(line) >= SHORTEST_LINE and (" " not in line[20:52] or len(line) >= SHORTEST_RUN)
    ]
    if not long:
        return text
    for number in long:
        if "x" in lines[number]:
            lines[number] = _BYTES.sub(LEFT_OUT, _ESCAPES.sub(LEFT_OUT, lines[number]))
        if max(map(len, lines[number].split()), default=0) >= SHORTEST_RUN:
            lines[number] = _RUN.sub(_shortened, lines[number])
    for first, stop in _wrapped(lines, long):
        for number in range(first, stop):
            before, data, after = _parts(lines[number])
            lines[number] = f"{before}{LEFT_OUT if number == first else ''}{after}" if data else lines[number]
    return "\n".join(lines)


def _same_lines(found: re.Match[str]) -> str:
    return LEFT_OUT + "\n" * found[0].count("\n")


def _shortened(found: re.Match[str]) -> str:
    run = found[0]
    digits = sum(map(str.isdigit, run)) / len(run)
    is_hex = len(run) >= SHORTEST_HEX and 0.2 < digits < 1 and set(run.lower()) <= set("0123456789abcdef")
    return LEFT_OUT if not run.startswith("\\") and (is_hex or _is_encoded(run)) else run


def _is_encoded(run: str) -> bool:
    """Return whether a run without spaces is encoded data, and no path, identifier, sequence or list of hashes."""
    counts = Counter(run)
    tests = (str.isupper, str.islower, str.isdigit)
    upper, lower, digits = (sum(counts[c] for c in counts if test(c)) / len(run) for test in tests)
    is_padded = upper + digits >= 0.8 and lower > 0 and counts.most_common(1)[0][1] >= 0.3 * len(run)
    return (digits >= 0.02 and upper >= 0.2 and lower >= 0.2) or is_padded


def _wrapped(lines: list[str], long: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first line of data that is cut into lines of equal length, and the line after the last."""
    done = 0
    for first in long:
        if (
            first < done
            or len(lines[first]) > LONGEST_LINE
            or len({len(line) for line in lines[first : first + FEWEST_LINES]}) > 1
        ):
            continue
        parts, stop = [], first
        while stop < len(lines) and len(lines[stop]) == len(lines[first]) and (part := _parts(lines[stop])[1]):
            parts.append(part)
            stop += 1
        done = max(done, stop)
        run = "".join(parts)
        is_base64 = _BASE64.fullmatch(run) is not None
        if len(parts) < (FEWEST_LINES if is_base64 else FEWEST_OTHER_LINES) or not _is_encoded(run):
            continue
        is_list = (
            sum(part.endswith("=") for part in parts) > len(parts) // 2
            or "://" in run
            or parts[0][:5].strip("A") == parts[-1][:5]
        )
        if not is_list:  # of hashes or addresses
            last = _parts(lines[stop])[1] if stop < len(lines) else ""
            continues = 0 < len(last) < len(parts[0]) and "-----" not in last
            yield first, stop + (continues and (not is_base64 or _LAST_BASE64.fullmatch(last) is not None))


def _parts(line: str) -> tuple[str, str, str]:
    """Return the data of a line, with what is before and after them; the data of other lines are empty."""
    found = _PART.fullmatch(line)
    return (found[1], found[2], found[3]) if found else (line, "", "")
