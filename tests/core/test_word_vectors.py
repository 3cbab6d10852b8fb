import gzip
import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ragembed.errors import ModelError
from ragembed.extractors import word_vector_files, word_vectors
from ragembed.extractors.word_vectors import open_word_vectors

GLOVE = "the 0.1 -0.2 3e-1\nof 1 2 3\n, 4 5 6\n"
VECTORS = np.array([[0.1, -0.2, 0.3], [1, 2, 3], [4, 5, 6]], dtype=np.float32)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The cache folder of parsed files, which does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ragembed" / "vectors"


@pytest.fixture
def parsed(monkeypatch):
    """The list of files that have been parsed so far."""
    paths = []
    original = word_vectors.word_blocks
    monkeypatch.setattr(word_vectors, "word_blocks", lambda path: (paths.append(path), original(path))[1])
    return paths


@pytest.fixture
def opened(tmp_path):
    def open_bytes(data, name="vectors"):
        file = tmp_path / name
        file.write_bytes(data.encode() if isinstance(data, str) else data)
        return open_word_vectors(file)

    return open_bytes


def glove(words, vectors, end="\n"):
    return b"".join(
        b" ".join([word, *(repr(float(x)).encode() for x in row)]) + end.encode()
        for word, row in zip(words, vectors, strict=True)
    )


def text(words, vectors, end="\n"):
    return f"{len(words)} {vectors.shape[1]}{end}".encode() + glove(words, vectors, end)


def binary(words, vectors, end=b""):
    rows = [word + b" " + row.astype("<f4").tobytes() + end for word, row in zip(words, vectors, strict=True)]
    return f"{len(words)} {vectors.shape[1]}\n".encode() + b"".join(rows)


WRITERS = {
    "glove": glove,
    "glove-crlf": lambda words, vectors: glove(words, vectors, "\r\n"),
    "glove-trailing-space": lambda words, vectors: glove(words, vectors, " \n"),
    "glove-no-last-line-break": lambda words, vectors: glove(words, vectors)[:-1],
    "glove-tabs": lambda words, vectors: glove(words, vectors).replace(b" ", b"\t"),
    "glove-byte-order-mark": lambda words, vectors: b"\xef\xbb\xbf" + glove(words, vectors),
    "text": text,
    "text-crlf": lambda words, vectors: text(words, vectors, "\r\n"),
    "binary": binary,
    "binary-line-breaks": lambda words, vectors: binary(words, vectors, b"\n"),
    "glove-gzip": lambda words, vectors: gzip.compress(glove(words, vectors)),
    "binary-gzip": lambda words, vectors: gzip.compress(binary(words, vectors)),
}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("block", [1 << 22, 40, 33])
def test_all_formats_give_the_same_vectors(opened, monkeypatch, writer, block):
    words = [b"the", b"5", b"caf\xc3\xa9", b"\xc2\xa0", b"0.5"]
    vectors = np.arange(20, dtype=np.float32).reshape(5, 4) / 4
    monkeypatch.setattr(word_vector_files, "_BLOCK", block)
    read = opened(writer(words, vectors))
    assert list(read.words) == ["the", "5", "café", "\u00a0", "0.5"]
    np.testing.assert_array_equal(read.vectors, vectors)
    assert read.vectors.dtype == np.float32
    assert not read.vectors.flags.writeable
    assert read.dim == 4
    assert read.index["café"] == 2


VOCABULARY = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters=" \t\n\r\x0b\x0c\ufeff"), min_size=1),
    min_size=1,
    unique=True,
)


@given(words=VOCABULARY, data=st.data())
@pytest.mark.parametrize("form", ["glove", "text", "binary", "binary-gzip"])
def test_any_vocabulary_round_trips(tmp_path, form, words, data):
    finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
    dim = data.draw(st.integers(2, 8))
    vectors = data.draw(npst.arrays(np.float32, (len(words), dim), elements=finite))
    file = tmp_path / "any"
    file.write_bytes(WRITERS[form]([word.encode() for word in words], vectors))
    blocks = list(word_vector_files.word_blocks(file))
    assert [word for block, _ in blocks for word in block] == words
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in blocks]), vectors)


def test_words_may_contain_spaces(opened):
    read = opened("the 1 2\n. . . 3 4\nat name@domain.com 5 6\n  leading 7 8\n 9 10\n")
    assert list(read.words) == ["the", ". . .", "at name@domain.com", "leading", ""]
    assert read.vectors.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]


@pytest.mark.parametrize(
    "repeated", ["2 1 2\nb 3 4\n2 5 6\nb 7 8\nc 9 0\n", "2 1 2\nb 3 4\n2 5 6\n" + "b 7 8\n" * 9 + "c 9 0"]
)
@pytest.mark.parametrize("block", [12, 1 << 22])
def test_first_vector_of_a_repeated_word_is_used(opened, monkeypatch, repeated, block):
    monkeypatch.setattr(word_vector_files, "_BLOCK", block)
    read = opened(repeated)
    assert list(read.words) == ["2", "b", "c"]
    assert read.vectors.tolist() == [[1, 2], [3, 4], [9, 0]]


def test_repeated_words_count_in_the_header(opened):
    assert list(opened("3 2\na 1 2\na 3 4\nb 5 6\n").words) == ["a", "b"]


def test_words_that_are_not_utf8_are_replaced(opened):
    read = opened(b"\xff\xfe 1 2\n\xfe\xff 3 4\ncaf\xe9 5 6\n")
    assert list(read.words) == ["\ufffd\ufffd", "caf\ufffd"]
    assert read.vectors.tolist() == [[1, 2], [5, 6]]


def test_blank_lines_are_skipped_but_counted(opened):
    assert list(opened("a 1 2\n\nb 3 4\n\n \r\n\n").words) == ["a", "b"]
    with pytest.raises(ModelError, match=r"vectors:3 has 1 number"):
        opened("a 1 2\n\nb 3\n")


def test_numeric_first_word_is_not_a_header(opened):
    assert list(opened("400000 300 1\n5 2 3\n").words) == ["400000", "5"]


@pytest.mark.parametrize("data", [b"abcdefghijklmnop", b"\nbcdefghijklmnop", b"\n\n\n\n        \n\n  "])
def test_binary_file_with_printable_bytes(opened, data):
    vectors = np.frombuffer(data, "<f4").reshape(2, 2)
    assert opened(binary([b"a", b"b"], vectors, b"\n")).vectors.tolist() == vectors.tolist()


ERRORS = {
    "empty": (b"", "is empty: expected a word-vector file"),
    "blank": (b"\n \n", "is empty"),
    "empty-gzip": (gzip.compress(b""), "is empty"),
    "pdf": (
        b"%PDF-1.7\n%\xe2\xe3\n1 0 obj",
        r"is not a word-vector file: its first line is '%PDF-1.7', expected a word and",
    ),
    "prose": (b"It was a dark night.\nAnd so on.\n", "is not a word-vector file: its first line is 'It was a dark"),
    "safetensors": (b"\x40\x00\x00\x00\x00\x00\x00\x00" + b'{"a": {}}'.ljust(64) + bytes(99), "is not a word-vector"),
    "zeros": (bytes(10_000), "is not a word-vector file"),
    "zip": (b"PK\x03\x04\x14\x00", "unpack the zip archive"),
    "cut-gzip": (gzip.compress(GLOVE.encode() * 999)[:-20], "damaged or truncated gzip file"),
    "bad-gzip": (b"\x1f\x8bnot gzip at all", "damaged or truncated gzip file"),
    "nan": ("a 1 2\nb nan 2\n", r":2: the vector of 'b' contains a number that is not a finite float32"),
    "infinite": ("a 1 2\nb 1 2\nc -inf 2\n", r":3: the vector of 'c' contains"),
    "too-large": ("a 1 2\nb 1 1e39\n", r":2: the vector of 'b' contains"),
    "binary-nan": (binary([b"a", b"b"], np.array([[1.7, 2], [3, np.nan]])), r", entry 2: the vector of 'b' contains"),
    "fewer-numbers": ("a 1 2 3\nb 4 5\n", r":2 has 2 numbers after the word 'b', expected 3, as in its first line"),
    "more-numbers": ("2 2\na 1 2\nb 4 5 6\n", r":3 has 3 numbers after the word 'b', expected 2, as in its header"),
    "no-number": ("a 1 2\nnew york 5\n", r":2 has 1 number after the word 'new york', expected 2"),
    "not-a-number": ("a 1 2\nb 1 0x2\n", r":2 has 0 numbers after the word 'b 1 0x2', expected 2"),
    "truncated-text": ("3 2\na 1 2\nb 4 5\n", r"has 2 words, it is truncated: expected 3, as in its header"),
    "truncated-line": ("2 2\na 1 2\nb 4", r":3 has 1 number after the word 'b'"),
    "longer-text": ("1 2\na 1 2\nb 4 5\n", r"has more words, it is damaged: expected 1, as in its header"),
    "header-alone": ("3 2\n", r"has 0 words, it is truncated: expected 3"),
    "truncated-binary": (binary([b"a", b"b"], np.ones((2, 9)))[:-1], r"has 1 words, it is truncated: expected 2"),
    "longer-binary": (binary([b"a"], np.ones((1, 9))) + b"b", "has more data after the 1 words that its header gives"),
    "binary-line-break": (binary([b"a", b"b\nc"], np.ones((2, 9))), ", entry 2 is not a word, a space and 9 float32"),
    "binary-no-space": (b"9 3\n" + bytes(1 << 17), ", entry 1 is not a word, a space and 3 float32"),
    "binary-long-word": (b"9 3\n" + bytes(1 << 17) + b" " + bytes(12), ", entry 1 is not a word, a space and 3"),
    "no-words": ("0 300\n", "the first line of .* says 0 words of 300 dimensions"),
    "no-dimensions": ("5 0\n", "says 5 words of 0 dimensions"),
    "many-dimensions": ("5 999999999999\na 1 2\n", "1 to 65536 dimensions"),
    "hostile-text": ("999999999999 65536\na 1 2\n" + "\n" * 10_000, ":2 has 2 numbers .* expected 65536"),
    "hostile-binary": (b"999999999999 65536\na \x00\x01\x02", "has 0 words, it is truncated: expected 999999999999"),
}


@pytest.mark.parametrize(("data", "message"), ERRORS.values(), ids=ERRORS)
def test_invalid_files_are_rejected(opened, cache, data, message):
    with pytest.raises(ModelError, match=message):
        opened(data)
    assert not list(cache.glob("*"))


def test_endless_line_is_not_read_into_memory(opened, monkeypatch):
    monkeypatch.setattr(word_vector_files, "_BLOCK", 64)
    monkeypatch.setattr(word_vector_files, "_LONGEST_LINE", 256)
    with pytest.raises(ModelError, match=r":3 is longer than 256 bytes, expected a word and 2 numbers"):
        opened("a 1 2\nb 3 4\n" + "x" * 10_000)


def test_paths_that_are_not_files(tmp_path):
    with pytest.raises(ModelError, match="missing does not exist: give a word-vector file"):
        open_word_vectors(tmp_path / "missing")
    with pytest.raises(ModelError, match="is not a regular file: give a word-vector file"):
        open_word_vectors(tmp_path)


def test_unreadable_file(opened, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(word_vectors, "file_sha256", refuse)
    with pytest.raises(ModelError, match="vectors cannot be read: Permission denied"):
        opened(GLOVE)


def test_file_that_changes_while_it_is_read(opened, tmp_path, monkeypatch):
    original = word_vectors.word_blocks

    def grow(path):
        yield from original(path)
        with path.open("a") as stream:
            stream.write("more 7 8 9\n")

    monkeypatch.setattr(word_vectors, "word_blocks", grow)
    with pytest.raises(ModelError, match="changed while it was read"):
        opened(GLOVE)


def test_second_use_maps_the_parsed_file(opened, parsed):
    first, second = opened(GLOVE), opened(GLOVE, "copy")
    assert len(parsed) == 1
    assert list(second.words) == list(first.words) == ["the", "of", ","]
    np.testing.assert_array_equal(second.vectors, VECTORS)
    assert not second.vectors.flags.owndata
    assert second.vectors.ctypes.data % 64 == 0


def test_changed_file_is_parsed_again(opened, parsed):
    opened(GLOVE)
    assert list(opened(GLOVE + "new 7 8 9\n").words) == ["the", "of", ",", "new"]
    assert len(parsed) == 2


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:300], lambda data: b"", lambda data: data[:-1] + b"x"]
)
def test_damaged_parsed_file_is_replaced(opened, parsed, cache, damage):
    opened(GLOVE)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    os.utime(file, ns=(1, 1))
    read = opened(GLOVE)
    assert len(parsed) == 2
    assert list(read.words) == ["the", "of", ","]
    np.testing.assert_array_equal(read.vectors, VECTORS)
    assert file.read_bytes() == whole
    assert list(cache.iterdir()) == [file]


def test_unusable_cache(opened, parsed, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("where the cache folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        read = opened(GLOVE)
        assert list(read.words) == ["the", "of", ","]
        np.testing.assert_array_equal(read.vectors, VECTORS)
        assert not read.vectors.flags.writeable
    assert len(parsed) == 2


def test_full_disk_leaves_no_files(opened, cache, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(word_vectors.os, "fsync", full)
    np.testing.assert_array_equal(opened(GLOVE).vectors, VECTORS)
    assert list(cache.iterdir()) == []


def test_files_of_a_killed_process_are_removed(opened, cache):
    cache.mkdir(parents=True)
    for name, time in (("old.tmp", (1, 1)), ("new.tmp", None)):
        (cache / name).touch()
        os.utime(cache / name, time)
    opened(GLOVE)
    assert (cache / "new.tmp").exists()
    assert not (cache / "old.tmp").exists()


def test_concurrent_parsing(opened, cache, tmp_path, monkeypatch):
    together = threading.Barrier(4)
    original = word_vectors.word_blocks

    def wait(path):
        together.wait(30)
        return original(path)

    monkeypatch.setattr(word_vectors, "word_blocks", wait)
    (tmp_path / "vectors").write_text(GLOVE)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(open_word_vectors(tmp_path / "vectors"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for read in results:
        np.testing.assert_array_equal(read.vectors, VECTORS)
    assert len(list(cache.iterdir())) == 1
