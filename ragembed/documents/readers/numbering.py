"""The numbers of list items, headings and clauses: ``2.``, ``2.1``, ``(a)``, ``iv.``, ``第三条``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from xml.etree.ElementTree import Element

from ragembed.documents.readers.package import attribute, value_of, whole_number

ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
    (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
LARGEST = 780
"""Largest number that is written with letters. They repeat, so a larger one could fill the memory."""
LATIN = "abcdefghijklmnopqrstuvwxyz"
ALPHABETS = {
    "a": LATIN, "lowerLetter": LATIN, "A": LATIN.upper(), "upperLetter": LATIN.upper(),
    "russianLower": "абвгдежзиклмнопрстуфхцчшщыэюя", "russianUpper": "АБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЩЫЭЮЯ",
    "arabicAlpha": "أبتثجحخدذرزسشصضطظعغفقكلمنهوي", "arabicAbjad": "أبجدهوزحطيكلمنسعفصقرشتثخذضظغ",
    "hebrew2": "אבגדהוזחטיכלמנסעפצקרשת", "thaiLetters": "กขคงจฉชซฌญฎฏฐฑฒณดตถทธนบปผฝพฟภมยรลวศษสหฬอฮ",
    "aiueo": "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワヲン",
    "iroha": "イロハニホヘトチリヌルヲワカヨタレソツネナラムウヰノオクヤマケフコエテアサキユメミシヱヒモセス",
    "ganada": "가나다라마바사아자차카타파하", "chosung": "ㄱㄴㄷㄹㅁㅂㅅㅇㅈㅊㅋㅌㅍㅎ",
    "ideographTraditional": "甲乙丙丁戊己庚辛壬癸", "ideographZodiac": "子丑寅卯辰巳午未申酉戌亥",
}  # fmt: skip
DIGITS = {
    "decimalFullWidth": "０１２３４５６７８９", "thaiNumbers": "๐๑๒๓๔๕๖๗๘๙", "hindiNumbers": "०१२३४५६७८९",
    "ideographDigital": "〇一二三四五六七八九", "japaneseDigitalTenThousand": "〇一二三四五六七八九",
    "koreanDigital": "영일이삼사오육칠팔구", "taiwaneseDigital": "○一二三四五六七八九",
}  # fmt: skip
TENS = {
    **dict.fromkeys(
        ("chineseCounting", "chineseCountingThousand", "japaneseCounting", "taiwaneseCounting",
         "taiwaneseCountingThousand"), "一二三四五六七八九十百",
    ),
    **dict.fromkeys(("koreanCounting", "koreanDigital2"), "일이삼사오육칠팔구십백"),
}  # fmt: skip
"""The digits from one to nine, ten and a hundred."""
HEBREW = ((400, "ת"), (300, "ש"), (200, "ר"), (100, "ק"), (90, "צ"), (80, "פ"), (70, "ע"), (60, "ס"), (50, "נ"),
          (40, "מ"), (30, "ל"), (20, "כ"), (16, "טז"), (15, "טו"), (10, "י"), (9, "ט"), (8, "ח"), (7, "ז"), (6, "ו"),
          (5, "ה"), (4, "ד"), (3, "ג"), (2, "ב"), (1, "א"))  # fmt: skip


def numeral(kind: str, number: int) -> str:
    """Write a number in a format of Office, HTML or OpenDocument, such as ``lowerRoman`` or ``i``; else in digits."""
    if kind in ("none", "") or number < 0:
        return "" if number >= 0 else str(number)
    if kind == "decimalZero":
        return f"{number:02}"
    if kind == "ordinal":
        teen = number % 100 in (11, 12, 13)
        return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
    if kind in DIGITS:
        return str(number).translate({ord("0") + digit: letter for digit, letter in enumerate(DIGITS[kind])})
    if kind.startswith("decimalEnclosedCircle") and 0 < number <= 20:
        return chr(0x245F + number)
    if not 0 < number <= LARGEST:
        return str(number)
    if kind in ALPHABETS:
        letters = ALPHABETS[kind]
        return letters[(number - 1) % len(letters)] * (1 + (number - 1) // len(letters))
    if kind in TENS and number < 200:
        return _with_tens(number, TENS[kind])
    if kind in ("i", "lowerRoman", "I", "upperRoman"):
        roman = _sum(number, ROMAN)
        return roman if kind in ("i", "lowerRoman") else roman.upper()
    return _sum(number, HEBREW) if kind == "hebrew1" else str(number)


def _sum(number: int, values: tuple[tuple[int, str], ...]) -> str:
    text = ""
    for value, letters in values:
        text, number = text + letters * (number // value), number % value
    return text


def _with_tens(number: int, digits: str) -> str:
    hundreds, number = divmod(number, 100)
    tens, ones = divmod(number, 10)
    ten = (digits[tens - 1] if tens > 1 or hundreds else "") + digits[9] if tens else "零" * bool(hundreds and ones)
    return (digits[0] + digits[10]) * hundreds + ten + (digits[ones - 1] if ones else "")


@dataclass(frozen=True, slots=True)
class ListLevel:
    """How the items at a level of a list are numbered. ``text`` has ``%1`` for the number of the first level.

    ``restart`` is the level, from 1, below which the numbers begin again; 0 means that they never do.
    """

    kind: str = "decimal"
    text: str = ""
    start: int = 1
    restart: int | None = None
    in_digits: bool = False
    style: str = ""
    gap: str = " "


@dataclass(slots=True)
class Counters:
    """The numbers of the items of one list so far, by level from 0."""

    levels: dict[int, ListLevel]
    numbers: dict[int, int] = field(default_factory=dict)

    def label(self, level: int, start: int | None = None) -> str:
        """Count an item and return what stands before its text. ``start`` is its number, if given."""
        own = self.levels.get(level)
        if own is None or own.kind == "bullet":
            return "- "
        number = self.numbers.get(level, own.start - 1) + 1 if start is None else start
        for at in [at for at in self.numbers if at > level]:
            restart = self.levels.get(at, own).restart
            if restart is None or level < restart:
                del self.numbers[at]
        self.numbers[level] = number

        def shown(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            of_level = self.levels.get(at, own)
            return numeral("decimal" if own.in_digits else of_level.kind, self.numbers.get(at, of_level.start))

        text = re.sub(r"%([1-9])", shown, own.text).strip()
        return f"{text}{own.gap}" if text else ""


class WordLists:
    """The lists of a Word file, from its numbering part. Lists of one definition count together."""

    def __init__(self, roots: list[Element]) -> None:
        self._counters: dict[str, Counters] = {}
        self._lists: dict[str, Counters] = {}
        self._starts: dict[str, dict[int, int]] = {}
        for root in roots:
            by_style: dict[str, str] = {}
            links: dict[str, str] = {}
            for abstract in root.iter("abstractNum"):
                name = attribute(abstract, "abstractNumId")
                self._counters[name] = Counters(dict(map(_word_level, abstract.iter("lvl"))))
                by_style[value_of(abstract, "styleLink")] = name
                links[name] = value_of(abstract, "numStyleLink")
            for listed in root.iter("num"):
                name = value_of(listed, "abstractNumId")
                name = by_style.get(links.get(name, "") or "-", name)
                if name in self._counters:
                    self._add_list(attribute(listed, "numId"), listed, self._counters[name])

    def _add_list(self, name: str, listed: Element, counters: Counters) -> None:
        changed: dict[int, ListLevel] = {}
        starts = self._starts[name] = {}
        for override in listed.iter("lvlOverride"):
            level = whole_number(attribute(override, "ilvl"))
            changed |= dict(map(_word_level, override.iter("lvl")))
            start = value_of(override, "startOverride")
            if start:
                starts[level] = whole_number(start, 1)
        # A list with levels of its own still shares the numbers.
        self._lists[name] = replace(counters, levels={**counters.levels, **changed}) if changed else counters

    def level_of(self, name: str, styles: tuple[str, ...]) -> int:
        """Return the level of a list that belongs to the first of the paragraph styles that has one."""
        counters = self._lists.get(name)
        levels = {at.style: level for level, at in counters.levels.items()} if counters else {}
        return next((levels[style] for style in styles if style in levels), 0)

    def label(self, name: str, level: int) -> str:
        """Count a paragraph of the list ``name``, and return what stands before its text."""
        counters = self._lists.get(name)
        if counters is None:
            return "- "
        return counters.label(level, self._starts[name].pop(level, None))


def _word_level(element: Element) -> tuple[int, ListLevel]:
    restart = value_of(element, "lvlRestart")
    legal = element.find("isLgl")
    level = ListLevel(
        value_of(element, "numFmt", "decimal"),
        value_of(element, "lvlText"),
        whole_number(value_of(element, "start", "1"), 1),
        whole_number(restart) if restart else None,
        legal is not None and attribute(legal, "val", "1") not in ("0", "false"),
        value_of(element, "pStyle"),
        "" if value_of(element, "suff") == "nothing" else " ",
    )
    return whole_number(attribute(element, "ilvl")), level
