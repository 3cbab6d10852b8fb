"""Choose the encoding of a text that is not Unicode: the one whose letters are most likely in a language.

The languages are models of letter frequencies. With them, a sentence is enough, and often a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache

_WESTERN = (
    "7ca96bb98gf9a87bi887adcgck éïñ13",  # English
    "8e996cdd8hk9a88af8788cmfhg é6 èà8 ê9 î11 çùôûâ12 œ11 ï12 ëæÿ13",  # French
    "9bb95caa7ic9b7adk887aecmic äü7 ö8 ß9",  # German
    "7d886dde8hk9b77bg888acmgfh ó7 áí8 éñú9 ü13",  # Spanish
    "7e9a6dbe6tk8a87ag888acgukd è8 à9 òù10 é11 ì12 î13",  # Italian
    "7e986cdd8hja986ae8889bkfjh ãç7 áéêó8 íú9 õ10 â11 ôà12",  # Portuguese
    "8bb85e9b8ccab78cn898bbbihd éëï12 öüèó13",  # Dutch
    "7dd97bad8ga8a79cp797bbkgen äö6 å7 é13",  # Swedish
    "8cg85b9d8g98b79ds787bbinfn åæø7 é13",  # Danish
    "9dj95b9d8e98b79bs787bblseo å6 ø7 æ9 éòô13",  # Norwegian
    "6jkd7jhc7c98a88cqb869aosbo ä4 ö8 åšž13",  # Finnish
    "7eib7b9c7fa8a8cfr7989bplcp ð4 áíþ6 óúæö7 é8 ý9",  # Icelandic
    "7d996dcd8hk8a88af8889dmdhj àó7 é8 èíò9 úçï10 ü12",  # Catalan
    "6c9a8ba77sp9a89ep899boqumq á5 éí6 óú7",  # Irish
    "6ei96ebc7c98a99coa778aojln ä6 õ7 ü8 ö11 šž13",  # Estonian
    "8dea7cc989aa989af7879dmhfe ë4 ç10",  # Albanian
)
"""The letters a to z, with twice their bits as a digit in base 36, and groups of other letters before their bits.

A letter with n bits is 2 to the power of -n of all letters.
"""
_CENTRAL = (
    "8bca7ghbaca9a879sa989ajkbb áěí6 čéšýž7 ř8 ů9 ú10 ďňó12 ť13",  # Czech
    "7bca7ffc9caaa87an998a9nhcb á6 čéíšťúýž7 ľ8 óô9 ďň10 ä12 ĺŕ13",  # Slovak
    "7caa7fde7babb87ap999am9ma9 ł6 ąćęóśż7 ń9 ź10",  # Polish
    "7beb6eacab98a99ds987cboqb9 áé5 ó6 íöő7 úüű8",  # Hungarian
    "7d8a6cdh7il9b89bs8988cnhof ă5 ţ6 îş7 â9",  # Romanian
    "7bea6ide7aa9a77as988c9supb č6 š7 ž8",  # Slovenian
    "6cda7hdg69aaa77au898aaoskb š7 čćž8 đ9",  # Croatian
)
_BALTIC = (
    "6dga8gcp6c9aa99as9789cqudi šų6 ąėįž7 ū8 čę9",  # Lithuanian
    "6cea8gdl7baaa9aas8779aqujb āī5 ēš6 ū7 ļ8 ņ9 ģž10 ķ11 č13",  # Latvian
)
_ASCII_LETTER = 5
_NOT_LATIN = f"{2 * _ASCII_LETTER:x}" * 26
_CYRILLIC = (
    f"{_NOT_LATIN} ео3 анитсрл4 вкпдумы5 зьяйбч6 жгфцш7 хющэ8 ё9 ъ10",  # Russian
    f"{_NOT_LATIN} аноеитів4 рслкдупмя5 ьзбйч6 гцєжшщ7 хюфї8 ґ14",  # Ukrainian
    f"{_NOT_LATIN} а3 ніелы4 ркяспцтдвьомзу5 бэўчг6 шйх7 жюф8 ё9 ґ10",  # Belarusian
    f"{_NOT_LATIN} аеи3 тонрс4 влдпзмк5 бъяч6 угйжц7 шфщ8 хю10",  # Bulgarian
    f"{_NOT_LATIN} аеи3 онтрс4 дквмулпјз5 б6 гцшњчж7 љфћх8 ђ9 џ13",  # Serbian
    f"{_NOT_LATIN} аеио3 нтрс4 дквлпм5 зјбуг6 шцч7 жњќф8 ѓѕ11 џ12 х13",  # Macedonian
)
_ARABIC = (
    f"{_NOT_LATIN} ال3 ميترن4 وةدحعبقأك5 فسصهجخإ6 ذطىغضث7 ئشءز8 ظ9 آـ10 ؤ12",
    f"{_NOT_LATIN} اید3 رنهتوم4 بشسکل5 فخزپع6 گقجحطص7 ذآغژچضث9 ظئ10",  # Persian
)
_MODELS = {
    codec: models
    for names, models in (
        ("cp1252 mac_roman cp850 cp437", _WESTERN),
        ("cp1250 iso8859_2 cp852 mac_latin2", _CENTRAL),
        ("cp1251 koi8_r koi8_u iso8859_5 cp866 mac_cyrillic", _CYRILLIC),
        ("cp1254 cp857 mac_turkish", ("7be97ece7ka8a8ado8a9aenkac ı4 şğçü6 ö7 İ7 âîû13",)),
        ("cp1257 iso8859_13 cp775 iso8859_4", _BALTIC),
        ("cp1253 iso8859_7 cp737", (f"{_NOT_LATIN} αε3 τοινρ4 σμπηκίλγέςυ5 δήάόχθω6 φύβ7 ώξ8 ζ9 ψ11 ϊϋΐΰ13",)),
        ("cp1255 iso8859_8", (f"{_NOT_LATIN} יו3 התלאמשר4 בנחסםדעקפ5 כןזט6 ךגצ7 ףץ9",)),
        ("cp1256 iso8859_6", _ARABIC),
        ("cp874", (f"{_NOT_LATIN} าอนกรเลง4 มหดบทยตสไวป5 ิี่้ั็ืุู์5 ใจคขะแชถผำ6 ณพซ7 ฟโ8 ญธ9 ฉษภศ10 ฤฐ11 ๆฮ12",)),
    )
    for codec in names.split()
}
_DOS = frozenset({"cp437", "cp737", "cp775", "cp850", "cp852", "cp857", "cp866", "iso8859_4"})
_CHARACTERS = ("cp932", "euc_jp", "gb18030", "cp949", "big5")
_COMMON_HAN = frozenset(
    "的一是不了在人有我他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可她里后小么心多天而能好都然没日于"
    "起还发成事只作当想看文无开手十用主行方又如前所本见经头面公同三已老从动两长知民样现分将外但身些与高意进把法此实请让认件码档页据"
    "這來國個說們為時會過學對後麼還發當無開見經頭動兩長樣現將與進實點種聲話問機給幾業間電門東氣關並產數件車請讓認碼檔頁據錯"
)
_COMMON_HANGUL = frozenset(
    "이다는을의에가하고지를로한은니사기자도있어인수해나리서시정대그일아들과보만부안제전장스으라주상여게동성세무원요구면비공유조신할문"
)
_CJK_SIGNS = frozenset("、。，・「」『』（）！？：；《》“”‘’…—\u3000")
_SIGNS = frozenset("“”„‘’‚«»‹›–—…·•°§©®™€£\xa0ªº½²³×±¿¡№¶†‰´")
_COMMON_SIGNS = frozenset("“”„‘’‚«»–…§°\xa0")
_IMPOSSIBLE, _RARE, _SIGN, _COMMON_SIGN = 24, 16, 11, 8
_BEYOND = re.compile(r"[^\x00-\x7f\W\d_]+|[^\x00-\x7f]")
_LONE = re.compile(r"(?<=[A-Za-z])[^\x00-\x7f](?![^\x00-\x7f])|(?<![^\x00-\x7f])[^\x00-\x7f](?=[A-Za-z])")
_IN_WORDS = frozenset("’‘–—·\xad")
_MOST_BITS = 13.5


def most_likely(sample: bytes) -> tuple[str, bool]:
    """Return the codec under which a text is most likely, and whether it is likely enough to explain few odd bytes."""
    counts = Counter(sample.lower())
    bits = {codec: _prior(codec) + _bits_of_bytes(counts, codec) for codec in _MODELS}
    bits |= {codec: _prior(codec) + _bits_of_characters(sample, codec) for codec in _CHARACTERS}
    checked: set[str] = set()
    while (best := min(bits, key=bits.__getitem__)) not in checked:
        bits[best] += _bits_of_context(sample, best)
        checked.add(best)
    beyond = sample.translate(None, bytes(range(128)))
    is_likely = best in _CHARACTERS or _bits_of_bytes(Counter(beyond), best) < _MOST_BITS * len(beyond)
    return best, is_likely and best not in _DOS and not _is_mac(best)


def _prior(codec: str) -> float:
    """Return how much less likely than Windows-1252 an encoding is, in bits."""
    return 0 if codec == "cp1252" else 9 if _is_mac(codec) else 6 if codec in _DOS else 3


def _is_mac(codec: str) -> bool:
    return codec.startswith("mac")


def _bits_of_bytes(counts: Counter[int], codec: str) -> float:
    """Return the bits of bytes in the language that fits best."""
    items = counts.items()
    return min(sum([count * table[byte] for byte, count in items]) for table in _tables(codec))


@lru_cache(maxsize=64)
def _tables(codec: str) -> list[list[float]]:
    return [_table(codec, model) for model in _MODELS[codec]]


def _table(codec: str, model: str) -> list[float]:
    """Return the bits of each byte."""
    ascii_letters, _, groups = model.partition(" ")
    letters = {letter: float(bits) for group, bits in re.findall(r"(\D+)(\d+)", groups) for letter in group.strip()}
    table = [0.0] * 97 + [int(digit, 36) / 2 for digit in ascii_letters] + [0.0] * 5
    for character in bytes(range(128, 256)).decode(codec, "replace"):
        letter = character if character in letters else character.lower()
        if letter in letters:
            table.append(letters[letter] + 3 * (letter != character))
        elif character == "\ufffd" or unicodedata.category(character)[0] == "C":
            table.append(_IMPOSSIBLE)
        else:
            table.append(_COMMON_SIGN if character in _COMMON_SIGNS else _SIGN if character in _SIGNS else _RARE)
    return table


def _bits_of_characters(sample: bytes, codec: str) -> float:
    counts = Counter(sample.decode(codec, "replace"))
    return sum(count * _bits_of_character(character, codec) for character, count in counts.items())


@lru_cache(maxsize=1 << 15)
def _bits_of_character(character: str, codec: str) -> float:
    """Return the bits of a character in Japanese, Chinese or Korean."""
    if character <= "\x7f":
        return _ASCII_LETTER * character.isalpha()
    if character == "\ufffd" or unicodedata.category(character)[0] == "C":
        return _IMPOSSIBLE
    if character in _CJK_SIGNS:
        return 8
    if "\u3041" <= character <= "\u30ff":
        return 7 if codec in ("cp932", "euc_jp") else 15
    if "\uac00" <= character <= "\ud7a3":
        return 7.5 if character in _COMMON_HANGUL else 11 if _first_byte(character, "euc_kr") else _RARE
    if "\u4e00" <= character <= "\u9fff":
        if codec in ("gb18030", "big5") and character in _COMMON_HAN:
            return 8
        # The first level of a national standard has the characters that nearly all texts consist of.
        standard, last = {"gb18030": ("gb2312", 0xD7), "big5": ("big5", 0xC6), "cp949": ("big5", 0)}.get(
            codec, ("euc_jp", 0xCF)
        )
        return 11 if 0 < _first_byte(character, standard) <= last else _RARE
    return 13


def _first_byte(character: str, codec: str) -> int:
    try:
        return character.encode(codec)[0]
    except UnicodeEncodeError:
        return 0


def _bits_of_context(sample: bytes, codec: str) -> float:
    """Return the bits of characters beyond ASCII at unusual places: a Greek letter or a sign in a word, and others."""
    text = sample.decode(codec, "replace")
    if codec in _CHARACTERS:
        return 8 * len(_LONE.findall(text))
    bits = 0
    for match in _BEYOND.finditer(text):
        run, before, after = match[0], text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
        if _is_in_word(run[0]):
            bits += 6 * (before.islower() and run[0].isupper())
            bits += 0 if _is_latin(run[0]) else 8 * (_is_latin(before) + _is_latin(after))
            bits += 3 * (len(run) == 1 and not _is_in_word(before) and not _is_in_word(after))
        elif run not in _IN_WORDS:
            bits += 6 * (_is_in_word(before) and _is_in_word(after))
    return bits


def _is_latin(character: str) -> bool:
    return character.isalpha() and (character <= "\x7f" or unicodedata.name(character, "").startswith("LATIN"))


def _is_in_word(character: str) -> bool:
    return character.isalpha() or (character > "\x7f" and unicodedata.category(character)[0] == "M")
