"""The text of a mail without signatures and encoded data, and without quotes of mails that are read elsewhere."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from html import unescape
from itertools import accumulate

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.html import parse_page
from ragembed.documents.readers.structure import FileText, TextBuilder
from ragembed.errors import DocumentError

MOST_LINES, MOST_TAGS = 500_000, 300_000
"""Maximum number of lines of a text in a mail, and of tags of an HTML text."""
KEPT_QUOTE = 3
"""Number of quoted lines that are kept above an answer between quotes."""
LONGEST_SIGNATURE = 15
"""Maximum number of lines of a signature. Longer texts below ``--`` are kept."""
_QUOTE = re.compile(r" {0,3}>")
_BLOCKS = (
    (re.compile(r"-----BEGIN PGP (?:SIGNATURE|MESSAGE|PUBLIC KEY BLOCK)-----"), re.compile("-----END PGP ")),
    (re.compile(r"-----BEGIN PGP SIGNED MESSAGE-----"), re.compile(r"\s*\Z")),
    (re.compile(r"begin [0-7]{3,4} \S"), re.compile(r"end\s*\Z")),
)
"""First and last lines of blocks that are not text: OpenPGP data, and files encoded with uuencode."""
_SHORTEST_BASE64, _LEAST_BASE64 = 60, 3
_BASE64 = re.compile(r"[A-Za-z0-9+/]{60,76}\s*\Z")
_LINKS = re.compile(r"(?<=[^\s(<])<https?://[^<>\s]*>|\[(?:https?://|cid:)[^\[\]\s]*\]")
"""The addresses of links and pictures, in the plain text that Outlook makes from HTML."""
_ATTRIBUTION = re.compile(
    r"(?:On\b.+\bwrote|Am\b.+\bschrieb\b.*|Le\b.+\ba écrit|El\b.+\bescribió|Il\b.+\bha scritto|Op\b.+\bschreef\b.*)"
    r"\s?:\s*\Z"
)
_ORIGINAL = re.compile(
    r"-{2,}\s*(?:Original Message|Ursprüngliche Nachricht|Message d'origine|Mensaje original|Messaggio originale"
    r"|Oorspronkelijk bericht)\s*-{2,}\s*\Z",
    re.IGNORECASE,
)
_FROM = re.compile(r"\W{0,4}(?:From|Von|De|Da|Van)\s?:")
_SENT = re.compile(r"\W{0,4}(?:Sent|Date|Gesendet|Datum|Envoyé|Enviado|Inviato|Data|Verzonden)\s?:")
_FORWARDED = re.compile("forward|weitergeleitet|transféré|reenviado|inoltrato|doorgestuurd", re.IGNORECASE)
_ORIGINAL_STARTS = re.compile(r"-{2,}|\W{0,4}(?:From|Von|De|Da|Van)\s?:|(?:On|Am|Le|El|Il|Op)\b")
"""The start of every line that the patterns above match, to decide about most lines quickly."""
_SIGNATURE = re.compile(r"--\s*\Z|_{40,}\s*\Z")
_HEADER_LINES = 4
LONGEST_STUB, _COMPARED = 5_000, 100_000
"""Maximum number of characters of a plain text that stands for an HTML text, and of the HTML that is compared."""
_MARKUP = re.compile(r"<(?:style|script|title)\b[^<>]*>[^<]*|<[^<>]*>", re.IGNORECASE)
_WORD = re.compile(r"[\u3040-\u9fff]|[^\W\u3040-\u9fff]{2,}")
_PICTURES = (".bmp", ".emz", ".gif", ".heic", ".ico", ".jpeg", ".jpg", ".png", ".svg", ".tif", ".tiff", ".webp", ".wmz")


def plain_text(text: str) -> ParsedDocument:
    """Return a plain text without the addresses of links and pictures."""
    check_lines(text.count("\n"))
    found = FileText(_LINKS.sub("", text))
    found.add_paragraphs(0, len(found.lines))
    return replace(found.document(), line_numbers=range(1, len(found.lines) + 1))


def html_text(html: str, *, keep_quotes: bool) -> ParsedDocument:
    """Return the text of a web page, with or without marked quotes."""
    check_lines(html.count("\n"))
    if html.count("<") > MOST_TAGS:
        raise DocumentError(f"its HTML has more than {MOST_TAGS:,} tags")
    return parse_page(html, keep_quotes=keep_quotes)


def at_lines(document: ParsedDocument, lines: Sequence[int]) -> ParsedDocument:
    """Replace the lines of a document by those of the file. The last of ``lines`` holds for further ones."""
    numbers = document.line_numbers or ()
    return replace(document, line_numbers=[lines[min(number, len(lines)) - 1] for number in numbers])


def check_lines(count: int) -> None:
    """Raise :class:`DocumentError` if ``count`` lines are too many."""
    if count > MOST_LINES:
        raise DocumentError(f"its text has more than {MOST_LINES:,} lines")


def is_stub(plain: str, html: str) -> bool:
    """Return whether a plain text lacks most words of its HTML alternative, such as "view this mail in a browser"."""
    if not html or len(plain) > LONGEST_STUB:
        return False
    words = set(_WORD.findall(unescape(_MARKUP.sub(" ", html[:_COMPARED])).casefold()))
    return len(words - set(_WORD.findall(plain.casefold()))) > len(words) / 2


def text_of_mail(texts: Sequence[ParsedDocument], *, keep_quotes: bool) -> TextBuilder:
    """Return the text of a mail. If it is empty without quotes and signatures, as in a forwarded mail, return all."""
    chosen = _chosen(texts, partial(own_lines, keep_quotes=keep_quotes))
    return chosen if chosen.blocks else _chosen(texts, _without_data)


def is_picture(name: str) -> bool:
    """Return whether an attachment is a picture. Pictures are not read, and too frequent in mails for warnings."""
    return name.lower().endswith(_PICTURES)


def _chosen(texts: Sequence[ParsedDocument], choose: Callable[[Sequence[str]], list[bool]]) -> TextBuilder:
    builder = TextBuilder()
    for each in texts:
        lines, places = each.text.split("\n"), each.line_numbers or ()
        starts = [0, *accumulate(len(line) + 1 for line in lines[:-1])]
        kept = choose(lines)
        for block in each.blocks:
            first, last = (bisect_right(starts, offset) - 1 for offset in (block.start, block.end - 1))
            numbers = [number for number in range(first, last + 1) if kept[number]]
            builder.add([(lines[number], places[number]) for number in numbers], block.kind, block.headings)
    return builder


def own_lines(lines: Sequence[str], *, keep_quotes: bool) -> list[bool]:
    """Return for each line of a mail whether it is kept. Quotes are cut to ``KEPT_QUOTE`` lines or dropped."""
    kept = _without_data(lines)
    if not keep_quotes:
        kept = _without_quotes(lines, _before_original(lines, kept))
    return _without_signatures(lines, kept)


def _without_data(lines: Sequence[str]) -> list[bool]:
    """Return for each line of a mail whether it is text: not a key, an OpenPGP signature or an encoded file."""
    kept = [True] * len(lines)
    end: re.Pattern[str] | None = None
    encoded = 0
    for number, line in enumerate(lines):
        if end is not None:
            kept[number] = False
            end = None if end.match(line) else end
            continue
        end = next((last for first, last in _BLOCKS if first.match(line)), None) if line[:1] in ("-", "b") else None
        encoded = encoded + 1 if len(line) >= _SHORTEST_BASE64 and _BASE64.match(line) else 0
        if end is not None:
            kept[number] = False
        elif encoded >= _LEAST_BASE64:
            kept[number - encoded + 1 : number + 1] = [False] * encoded
    return kept


def _before_original(lines: Sequence[str], kept: list[bool]) -> list[bool]:
    """Drop a copy of the original message that is not marked with ``>``, if there is text above it."""
    above = ""
    for number, line in enumerate(lines):
        if not kept[number] or not line.strip() or _QUOTE.match(line):
            continue
        starts = above and _ORIGINAL_STARTS.match(line) and _starts_original(lines, number)
        if starts and not _FORWARDED.search(above):
            return [*kept[:number], *[False] * (len(kept) - number)]
        above = line
    return kept


def _starts_original(lines: Sequence[str], number: int) -> bool:
    line = lines[number]
    if _ORIGINAL.match(line):
        return True
    following = [text for text in lines[number + 1 : number + 1 + _HEADER_LINES] if text.strip()]
    if _FROM.match(line):
        return any(_SENT.match(text) for text in following)
    attribution = _ATTRIBUTION.match(line) or (following and _ATTRIBUTION.match(f"{line} {lines[number + 1]}"))
    return bool(attribution) and not any(_QUOTE.match(text) for text in following)


def _without_quotes(lines: Sequence[str], kept: list[bool]) -> list[bool]:
    kept = list(kept)
    answered = False  # whether the author's own text follows
    last = len(lines) - 1
    while last >= 0:
        if not _QUOTE.match(lines[last]) or not kept[last]:
            answered = answered or (kept[last] and bool(lines[last].strip()))
            last -= 1
            continue
        first = last
        while first > 0 and (_QUOTE.match(lines[first - 1]) or not lines[first - 1].strip()):
            first -= 1
        while not lines[first].strip():
            first += 1
        stop = max(first, last + 1 - KEPT_QUOTE) if answered else last + 1
        first = _attribution_start(lines, first)
        kept[first:stop] = [False] * (stop - first)
        last = first - 1
    return kept


def _attribution_start(lines: Sequence[str], first: int) -> int:
    """Return the first line of the sentence above a quote that names its author, else ``first``."""
    above = first - 1
    while above >= 0 and not lines[above].strip():
        above -= 1
    if above < 0 or first - above > 2 or not lines[above].rstrip().endswith(":"):
        return first
    if above > 0 and not _ATTRIBUTION.match(lines[above]) and _ATTRIBUTION.match(f"{lines[above - 1]} {lines[above]}"):
        return above - 1
    return above


def _without_signatures(lines: Sequence[str], kept: list[bool]) -> list[bool]:
    """Drop the signatures below ``--`` and the footers of mailing lists, up to a quoted mail."""
    kept = list(kept)
    stop, following = len(lines), 0
    for number in reversed(range(len(lines))):
        if not kept[number] or not lines[number].strip():
            continue
        if _QUOTE.match(lines[number]) or (_ORIGINAL_STARTS.match(lines[number]) and _starts_original(lines, number)):
            stop, following = _attribution_start(lines, number), 0
        elif number < stop and _SIGNATURE.match(lines[number]) and following <= LONGEST_SIGNATURE:
            kept[number:stop] = [False] * (stop - number)
        else:
            following += 1
    return kept
