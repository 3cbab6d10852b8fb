"""Dictionaries in each format, written by hand after the format descriptions, and merging."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.errors import ConfigError, DictionaryError
from ragembed.papers.training.dictionary import Dictionary, Sense, merge, read_dictionaries


def as_dict(*paths):
    dictionary = read_dictionaries(paths)
    return dict(zip(dictionary.entries, dictionary.definitions, strict=True))


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def tsv(tmp_path):
    return written(
        tmp_path / "words.tsv", "entry\tdefinition\nlock\tit keeps writers apart\nlock\thair\ncat\tan animal\n"
    )


def test_tsv_with_and_without_a_header(tmp_path, tsv):
    assert as_dict(tsv) == {"lock": ("it keeps writers apart", "hair"), "cat": ("an animal",)}
    assert as_dict(written(tmp_path / "b.tsv", "a\tb\n\nc\td\n")) == {"a": ("b",), "c": ("d",)}


def test_jsonl_with_one_definition_or_several(tmp_path):
    lines = [{"entry": "a", "definition": "b"}, {"entry": "c", "definitions": ["d", "e"], "lang": "en"}]
    file = written(tmp_path / "w.jsonl", "\n".join(map(json.dumps, lines)))
    assert as_dict(file) == {"a": ("b",), "c": ("d", "e")}


def test_oxford_as_published(tmp_path):
    rows = {"train": "wing%oxford.0\tpos\toxford\ta limb\t[]\t[]\nwing%oxford.1\tpos\toxford\ta part\t[]\t[]\n"}
    rows |= {"valid": "take off%oxford.0\tpos\toxford\tto leave , by air\t[]\t[]\n", "test": ""}
    for name, text in rows.items():
        written(tmp_path / f"{name}.txt", text)
    assert as_dict(tmp_path) == {"wing": ("a limb", "a part"), "take off": ("to leave , by air",)}
    written(tmp_path / "test.txt", "wing\ta limb\n")
    with pytest.raises(DictionaryError, match=r"test.txt, line 1: got 'wing\\ta limb': expected entry%number"):
        as_dict(tmp_path)


def test_several_dictionaries_are_merged(tmp_path, tsv):
    other = written(tmp_path / "other.tsv", "cat\tan  animal\ncat\ta whip\ndog\tan animal\n")
    assert as_dict(tsv, other) == {
        "lock": ("it keeps writers apart", "hair"),
        "cat": ("an animal", "a whip"),
        "dog": ("an animal",),
    }


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), min_size=1))
def test_merging_is_grouping(pairs):
    merged = merge(Sense(entry, definition, "here") for entry, definition in pairs)
    assert len(set(merged.entries)) == len(merged)
    assert {(merged.entries[i], text) for i, text in merged.pairs()} == set(pairs)
    assert sum(1 for _ in merged.pairs()) == len(set(pairs))


def test_an_entry_without_definition_is_named(tmp_path):
    file = written(tmp_path / "w.tsv", "lock\thair\nzebra\t \n")
    with pytest.raises(DictionaryError, match=r"w\.tsv, line 2: the entry 'zebra' has no definition"):
        read_dictionaries([file])
    empty = written(tmp_path / "w.jsonl", '{"entry": "okapi", "definitions": []}')
    with pytest.raises(DictionaryError, match="'okapi' has no definition"):
        read_dictionaries([empty])
    assert as_dict(file, written(tmp_path / "v.tsv", "zebra\ta striped horse\n"))["zebra"] == ("a striped horse",)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("w.tsv", "a\tb\tc\n", "line 1: 3 fields"),
        ("w.tsv", "\tb\n", "line 1: the entry is empty"),
        ("w.tsv", "\n", "has no entry"),
        ("w.jsonl", '{"entry": "a"}', "line 1: expected exactly one of the fields 'definition' and 'definitions'"),
        ("w.jsonl", '{"entry": "a", "definition": 1}', "line 1: a value is not a string"),
        ("w.jsonl", '{"entry": 2, "definition": "b"}', "line 1: a value is not a string"),
        ("w.txt", "a b", "has an unknown suffix: expected .tsv"),
        ("w.md", "# Title\n\nText.\n", "has no entry: expected definition lists"),
        ("w.md", "| Term | Definition |\n|-|-|\n| lock | |\n", r"w\.md, line 3: the entry 'lock' has no definition"),
        ("w.index", "ox\tA\tJ\n", r"neither w\.dict nor w\.dict\.dz"),
    ],
)
def test_errors_name_the_line(tmp_path, name, text, message):
    with pytest.raises(DictionaryError, match=message):
        read_dictionaries([written(tmp_path / name, text)])


def test_missing_dictionaries_are_errors(tmp_path):
    with pytest.raises(DictionaryError, match="no dictionary"):
        read_dictionaries([])
    with pytest.raises(DictionaryError, match="does not exist"):
        read_dictionaries([tmp_path / "absent.tsv"])
    with pytest.raises(DictionaryError, match=r"expected WordNet's data\.noun, Oxford's train\.txt, or Mark"):
        read_dictionaries([tmp_path])
    with pytest.raises(DictionaryError, match="no entry"):
        Dictionary((), ())
    with pytest.raises(ConfigError, match="not valid JSON"):
        read_dictionaries([written(tmp_path / "w.jsonl", "{")])


LICENCE = "  1 This software and database is being provided to you, the LICENSEE.  \n"
NOUN = (
    '00001740 03 n 01 entity 0 003 ~ 00001930 n 0000 | that which is perceived; known to have existence; "a body"  \n'
    "00002000 05 n 02 giraffe 0 Giraffa_camelopardalis 0 000 | tallest living quadruped  \n"
)
ADJECTIVE = '00014358 00 s 02 abounding 0 galore(ip) 0 000 | existing in abundance; "whiskey galore"; "more"  \n'


@pytest.fixture
def wordnet(tmp_path):
    folder = tmp_path / "wordnet"
    folder.mkdir()
    verb = '00001740 29 v 01 breathe 0 000 02 + 02 00 + 08 00 | draw air into the lungs: "I can breathe"  \n'
    adverb = '00001740 02 r 01 a_cappella 0 000 | without musical accompaniment (called "dry")  \n'
    for name, text in (("noun", NOUN), ("verb", verb), ("adj", ADJECTIVE), ("adv", adverb)):
        (folder / f"data.{name}").write_text(LICENCE + text)
    return folder


def test_wordnet(wordnet):
    assert as_dict(wordnet) == {
        "entity": ("that which is perceived; known to have existence",),
        "giraffe": ("tallest living quadruped",),
        "Giraffa camelopardalis": ("tallest living quadruped",),
        "breathe": ("draw air into the lungs",),
        "abounding": ("existing in abundance",),
        "galore": ("existing in abundance",),
        "a cappella": ('without musical accompaniment (called "dry")',),
    }


def test_incomplete_wordnet_is_an_error(wordnet):
    (wordnet / "data.adv").write_text("00001740 02 r 05 too 0 000 | few\n")
    with pytest.raises(DictionaryError, match=r"data\.adv, line 1: expected a synset"):
        read_dictionaries([wordnet])
    (wordnet / "data.adv").write_text("00001740 02 r 01 alone 0 000\n")
    with pytest.raises(DictionaryError, match="no gloss"):
        read_dictionaries([wordnet])
    (wordnet / "data.adv").unlink()
    with pytest.raises(DictionaryError, match=r"has no data\.adv"):
        read_dictionaries([wordnet])


def base64(number):
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    text = digits[number % 64]
    while number := number // 64:
        text = digits[number % 64] + text
    return text


def dictd(folder, articles, packed=False):
    data, index = b"", []
    for word, text in articles:
        encoded = text.encode()
        index.append(f"{word}\t{base64(len(data))}\t{base64(len(encoded))}")
        data += encoded
    (folder / "d.index").write_text("\n".join(index) + "\n", encoding="utf-8")
    if packed:
        (folder / "d.dict.dz").write_bytes(gzip.compress(data))
    else:
        (folder / "d.dict").write_bytes(data)
    return folder / "d.index"


ARTICLES = [
    ("00-database-info", "About this dictionary\n"),
    ("filler", "filler\n  " + "word " * 40),
    ("café", "Café\n   a small restaurant\n   in France\n"),
    ("ox", "an animal"),
]


@pytest.mark.parametrize("packed", [False, True])
def test_dictd(tmp_path, packed):
    found = as_dict(dictd(tmp_path, ARTICLES, packed))
    assert found == {
        "filler": (" ".join(["word"] * 40),),
        "café": ("a small restaurant in France",),
        "ox": ("an animal",),
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ox\tA\n", "2 fields"),
        ("ox\tA\tz\n", "ends at byte 51, but the file has only 9 bytes"),
        ("ox\tA\t!\n", "not a number in the base 64"),
    ],
)
def test_damaged_dictd_is_an_error(tmp_path, line, message):
    (tmp_path / "d.dict").write_text("an animal")
    (tmp_path / "d.index").write_text(line)
    with pytest.raises(DictionaryError, match=message):
        read_dictionaries([tmp_path / "d.index"])
    (tmp_path / "d.dict").unlink()
    (tmp_path / "d.dict.dz").write_bytes(b"no gzip")
    with pytest.raises(DictionaryError, match="cannot be unpacked"):
        read_dictionaries([tmp_path / "d.index"])


def stardict(folder, articles, types="m", width=4, packed=False):
    data, index = b"", b""
    for word, article in articles:
        index += word.encode() + b"\0" + len(data).to_bytes(width, "big") + len(article).to_bytes(4, "big")
        data += article
    state = f"sametypesequence={types}\n" if types else ""
    bits = "idxoffsetbits=64\n" if width == 8 else ""
    (folder / "s.ifo").write_text(f"StarDict's dict ifo file\nversion=3.0.0\nbookname=S\n{state}{bits}")
    (folder / ("s.idx.gz" if packed else "s.idx")).write_bytes(gzip.compress(index) if packed else index)
    (folder / ("s.dict.dz" if packed else "s.dict")).write_bytes(gzip.compress(data) if packed else data)
    return folder / "s.ifo"


@pytest.mark.parametrize(("width", "packed"), [(4, False), (8, False), (4, True)])
def test_stardict(tmp_path, width, packed):
    found = as_dict(stardict(tmp_path, [("ox", b"an animal"), ("café", "un caf\u00e9".encode())], "m", width, packed))
    assert found == {"ox": ("an animal",), "café": ("un café",)}


def test_stardict_skips_sounds_and_markup(tmp_path):
    article = b"mfirst\0tpronounced\0W" + (4).to_bytes(4, "big") + b"\0\1\2\3" + b"h<b>second</b> &amp; third"
    assert as_dict(stardict(tmp_path, [("ox", article)], "")) == {"ox": ("first second & third",)}
    assert as_dict(stardict(tmp_path, [("ox", b"oks\0<i>an</i> animal")], "th")) == {"ox": ("an animal",)}


def test_damaged_stardict_is_an_error(tmp_path):
    file = stardict(tmp_path, [("ox", b"an animal")])
    (tmp_path / "s.dict").write_bytes(b"an")
    with pytest.raises(DictionaryError, match="ends at byte 9, but the file has only 2 bytes"):
        read_dictionaries([file])
    (tmp_path / "s.idx").write_bytes(b"ox\0\0\0")
    with pytest.raises(DictionaryError, match="truncated at byte 0 of 5"):
        read_dictionaries([file])
    (tmp_path / "s.idx").unlink()
    with pytest.raises(DictionaryError, match=r"neither s\.idx nor s\.idx\.gz"):
        read_dictionaries([file])
    file.write_text("idxoffsetbits=16\n")
    with pytest.raises(DictionaryError, match="expected 32 or 64"):
        read_dictionaries([file])


GLOSSARY = """# Glossary

store
: a folder with an index

**Chunk**
passage
:   the unit that is *embedded*
    and [found](search.md)

:   a piece

writer

: one process

```text
not a term
: nor a definition
```

| n | Term | Meaning |
| - | :--- | ------: |
| 1 | `lock` | keeps writers \\| readers apart |
| 2 | __wing__ | lifts |

| a | b |
| - | - |
| no | glossary |

Plain text: with a colon.
"""


def test_markdown_glossaries(tmp_path):
    expected = {
        "store": ("a folder with an index",),
        "Chunk": ("the unit that is embedded and found", "a piece"),
        "passage": ("the unit that is embedded and found", "a piece"),
        "writer": ("one process",),
        "lock": ("keeps writers | readers apart",),
        "wing": ("lifts",),
    }
    assert as_dict(written(tmp_path / "glossary.md", GLOSSARY)) == expected
    written(tmp_path / "other.md", "# No glossary\n")
    assert as_dict(tmp_path) == expected
