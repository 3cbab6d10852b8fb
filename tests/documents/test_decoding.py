from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.documents.decoding import decode, is_binary

FRENCH = (
    "L’été dernier, nous avons déjeuné à l’ombre des châtaigniers, près de la rivière.\n"
    "« Où êtes-vous allés ? » demanda le garçon ; sa sœur, elle, n’a rien répondu.\n"
    "Le cœur léger, ils sont rentrés tard – très tard – après la fête du hameau.\n"
)
GERMAN = (
    "Die größte Brücke führt über den Fluß; dahinter liegt ein schönes altes Gebäude.\n"
    "„Können Sie mir helfen?“, fragte die Ärztin. Öffentliche Mittel für Äpfel gibt es nicht.\n"
    "Müller überprüft täglich die Maßnahmen gemäß §\xa012 und fährt anschließend nach Köln.\n"
)
SPANISH = (
    "¿Dónde está el niño? Mañana irá al colegio con su compañera de clase.\n"
    "¡Qué día más bonito! El pingüino cruzó el río y el camión llegó a la estación nº 5.\n"
)
JAPANESE = (
    "昨日、友達と一緒に東京の図書館へ行きました。\n"
    "ベクトル検索は、文書の意味が近いものを探す方法です。\n"
    "「準備はできましたか？」と彼女は聞いた。ファイルをサーバーに保存してください。\n"
)

WESTERN_SHORT = (
    "café crème", "naïve", "Noël", "été", "à bientôt", "ÉTÉ", "l’œuvre", "Größe", "Straße", "für", "Übung",
    "ÄÖÜ sind Umlaute", "Ä", "niño", "¿Qué?", "¡Olé!", "5º nivel", "señor Muñoz", "don’t “quote” me",
    "25 °C – 30 °C", "© 2024 Société Générale", "100 € + 20 £", "créée", "São Paulo", "smörgåsbord", "Ærø",
)  # fmt: skip
JAPANESE_SHORT = (
    "こんにちは", "カタカナ", "東京", "日本語の文書", "表1を参照", "エラー: ファイルが見つかりません", "動画",
    "I like 寿司 very much", "価格は100円です。", "株式会社テスト", "はい",
)  # fmt: skip


def pieces(text: str, count: int) -> list[str]:
    """Return runs of two to twelve words or characters, like the content of a short file."""
    rng = random.Random(1)
    units = text.split(" ") if " " in text else list(text.replace("\n", ""))
    joiner = " " if " " in text else ""
    starts = [rng.randrange(len(units) - 2) for _ in range(count)]
    found = [joiner.join(units[start : start + rng.randint(2, 12)]) for start in starts]
    return [piece for piece in found if not piece.isascii()]


@pytest.mark.parametrize("text", [*WESTERN_SHORT, FRENCH, GERMAN, SPANISH, FRENCH * 100, "plain\n" * 50_000 + FRENCH])
def test_windows_1252_is_detected(text: str) -> None:
    assert decode(text.encode("cp1252")) == text


@pytest.mark.parametrize("text", [FRENCH, GERMAN, SPANISH], ids=["fr", "de", "es"])
def test_short_western_texts_are_detected(text: str) -> None:
    wrong = [piece for piece in pieces(text, 400) if decode(piece.encode("cp1252")) != piece]
    assert wrong == []


@pytest.mark.parametrize("text", [*JAPANESE_SHORT, JAPANESE, JAPANESE * 100, "plain\n" * 50_000 + JAPANESE])
def test_shift_jis_is_detected(text: str) -> None:
    assert decode(text.encode("cp932")) == text


def test_short_shift_jis_texts_are_detected() -> None:
    wrong = [piece for piece in pieces(JAPANESE, 400) if decode(piece.encode("cp932")) != piece]
    assert wrong == []


@pytest.mark.parametrize("text", ["こんにちは", "カタカナ", "ファイルが見つかりません", "表1を参照", JAPANESE])
def test_euc_jp_with_kana_is_detected(text: str) -> None:
    assert decode(text.encode("euc_jp")) == text


SENTENCES = {
    "cp1250 iso8859_2 cp852": (
        "Kolem poledne přišel strážce hráze a řekl, že voda stoupá.",
        "Strážca hrádze povedal, že voda stúpa a ľudia majú ísť domov.",
        "Strażnik śluzy powiedział, że woda się podnosi, więc zamknął bramę.",
        "A zsilip őre szerint a víz emelkedik, ezért bezárta a kaput a hűvös estén.",
        "Paznik je dejal, da voda narašča, zato je zaprl vrata in odšel čez most.",
        "Čuvar je rekao da voda raste, pa je zatvorio vrata i otišao preko mosta do kuće.",
        "Paznicul a spus că apa creşte şi a închis poarta înainte de noapte, lângă ţărm.",
    ),
    "cp1254 cp857": ("Bekçi suyun yükseldiğini söyledi ve akşam olmadan kapıyı kapattı.", "İstanbul'da yağmur"),
    "cp1257 iso8859_13 cp775": (
        "Sargas pasakė, kad vanduo kyla, todėl uždarė vartus ir išėjo per tiltą į namus.",
        "Sargs teica, ka ūdens ceļas, tāpēc viņš aizvēra vārtus un gāja mājās.",
    ),
    "cp1251 koi8_r cp866 iso8859_5": (
        "Сторож сказал, что вода поднимается, и закрыл ворота.",
        "Пазачът каза, че водата се покачва, и затвори вратата.",
    ),
    "cp1251 koi8_u": ("Сторож сказав, що вода піднімається, і зачинив ворота до їхнього приходу.",),
    "cp1253 iso8859_7 cp737": ("Ο φύλακας είπε ότι το νερό ανεβαίνει και έκλεισε την πύλη.",),
    "cp1255": ("השומר אמר שהמים עולים וסגר את השער לפני הלילה.",),
    "cp1256": ("قال الحارس إن الماء يرتفع وأغلق البوابة قبل الليل.",),
    "cp874": ("ผู้ดูแลบอกว่าน้ำกำลังขึ้นและปิดประตูก่อนค่ำ",),
    "gb18030": ("管理员说水位正在上升，所以关闭了闸门。", "请检查文件"),
    "big5": ("管理員說水位正在上升，所以關閉了閘門。",),
    "cp949": ("관리인은 물이 차오르고 있다고 말하고 문을 닫았다.",),
    "mac_roman cp850": ("Der Wärter sagte, dass das Wasser über die Brücke steigt, und schloß früh das große Tor.",),
}


@pytest.mark.parametrize(
    ("text", "codec"),
    [(text, codec) for codecs, texts in SENTENCES.items() for text in texts for codec in codecs.split()],
)
def test_a_sentence_is_enough_to_detect_an_encoding(text: str, codec: str) -> None:
    assert decode(text.encode(codec)) == text
    assert decode(f"plain\n{text}\n".encode(codec) * 9) == f"plain\n{text}\n" * 9


@pytest.mark.parametrize(
    "text", ["Příliš žluťoučký kůň", "Výměna čerpadel", "Kırmızı ışık", "Żółta łódź", "Árvíztűrő tükörfúrógép"]
)
def test_few_words_are_detected(text: str) -> None:
    codec = "cp1254" if "ı" in text else "cp1250"
    assert decode(text.encode(codec)) == text


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "text", ["Hi", "naïve café", FRENCH, "設定 A\n値 B\n" + JAPANESE, "ключ = 1\n", "line\r\nline\r\n"]
)
def test_utf16_without_bom_is_detected(text: str, codec: str) -> None:
    data = text.encode(codec)
    assert decode(data) == text.replace("\r\n", "\n")
    assert not is_binary(data)


def test_utf32_needs_its_bom() -> None:
    assert decode("é 漢\n".encode("utf-32")) == "é 漢\n"
    assert decode(b"\x00\x00\xfe\xff" + "é".encode("utf-32-be")) == "é"


printable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def normalised(text: str) -> str:
    text = text.replace("\r\n", "\n")
    return text.replace("\r", " " if "\n" in text else "\n")


@given(printable, st.sampled_from(["utf-8-sig", "utf-16", "utf-32"]))
def test_any_text_with_bom_round_trips(text: str, codec: str) -> None:
    assert decode(text.encode(codec)) == normalised(text)


@given(printable.filter(lambda text: not text.startswith("\ufeff")))
def test_any_utf8_round_trips(text: str) -> None:
    assert decode(text.encode("utf-8")) == normalised(text)


@given(st.binary())
def test_decode_never_fails(data: bytes) -> None:
    assert "\r" not in decode(data)
    is_binary(data)


def test_only_newlines_end_lines() -> None:
    text = "a\x0bb\x0cc\u2028d\x85e\u2029f\x1cg"
    assert decode(text.encode()) == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"a\rb\r", "a\nb\n"),
        (b"10%\r20%\r\ndone\n", "10% 20%\ndone\n"),
        (b"a\r\r\nb\n", "a \nb\n"),
    ],
)
def test_line_count_matches_sed(data: bytes, text: str) -> None:
    assert decode(data) == text


def test_one_bad_byte_changes_nothing_else() -> None:
    lines = [f"2024-05-0{i % 9} 日誌 naïve entry {i}" for i in range(200)]
    data = "\n".join(lines).encode().replace(b"entry 77", b"entry \xff77")
    decoded = decode(data)
    assert decoded == "\n".join(lines).replace("entry 77", "entry \ufffd77")


def test_bad_bytes_in_an_ascii_log() -> None:
    data = b"GET /index.html 200\n" * 500 + b"GET /\x81\x9d\xfe 404\n"
    assert decode(data) == "GET /index.html 200\n" * 500 + "GET /\ufffd\ufffd\ufffd 404\n"


def test_text_truncated_inside_a_character() -> None:
    data = "短い文".encode()[:-1]
    assert decode(data) == "短い\ufffd"


def test_damaged_shift_jis_stays_japanese() -> None:
    decoded = decode(JAPANESE.encode("cp932") + b"\x85\n")
    assert decoded.startswith(JAPANESE)


@pytest.mark.parametrize(
    "sample",
    [
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
        b"text with one \0 byte",
        b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\x3e\x00\x01\x00\x00\x00",
        b"\x01\x02\x03\x04abc\x05\x06",
        random.Random(3).randbytes(4096).replace(b"\0", b"\x01"),
        random.Random(3).randbytes(8192),
        ("".join(map(chr, range(0x3400, 0x3600))) + "ab").encode("utf-16-le"),
        b"".join(number.to_bytes(4, "little") for number in range(1000)),
        b"".join(number.to_bytes(2, "little") for number in range(1000)),
    ],
)  # fmt: skip
def test_binary(sample: bytes) -> None:
    assert is_binary(sample)


@pytest.mark.parametrize(
    "sample",
    [
        b"",
        b"text",
        b"\x1b[31mred\x1b[0m\n" * 20,
        b"8=FIX.4.2\x019=178\x0135=8\x01" * 20,
        FRENCH.encode("cp1252"),
        (JAPANESE * 100).encode("cp932"),
        (JAPANESE * 100).encode("utf-8"),
        FRENCH.encode("utf-16"),
        FRENCH.encode("utf-32"),
        (JAPANESE * 100 + "A").encode("utf-16-le"),
        ("😀" * 3000 + "ab cd").encode("utf-16"),
    ],
)
def test_text(sample: bytes) -> None:
    assert not is_binary(sample)


def test_only_the_first_8_kb_are_sniffed() -> None:
    assert is_binary(b"a" * 8191 + b"\0")
    assert not is_binary(b"a" * 8192 + b"\0")
