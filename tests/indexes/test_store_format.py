"""A reader that follows the documentation of the store format alone returns the same results as the store."""

import hashlib
import json
import math
import re
import shutil
import sqlite3
import struct
import unicodedata
from collections import Counter
from contextlib import closing
from importlib.resources import files
from itertools import chain, groupby, pairwise
from pathlib import Path
from statistics import NormalDist

import faiss
import numpy as np
import pytest

from ragembed import Embedder
from ragembed.config.specs import POSTPROCESSORS
from ragembed.errors import StoreLockedError
from ragembed.indexes import Store
from ragembed.indexes.faiss_index.building import build_index
from ragembed.indexes.faiss_index.index import SegmentIndex
from ragembed.indexes.faiss_index.records import NAMES, Budget, IndexConfig, IndexSpec, parse_spec
from ragembed.indexes.faiss_index.vectors import ArrayVectors
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingOptions, IndexingRequest
from ragembed.indexes.storage import posting_files, segments
from ragembed.indexes.storage.catalog import PartRecord
from tests.conftest import WORDS, KnownEncoder, record

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES = ("store-format.md", "store-database.md", "store-metadata.md", "store-files.md")
PAGE = "\n".join((REFERENCE / name).read_text(encoding="utf-8") for name in PAGES)


# The reader: it uses nothing of ragembed, only what the pages say.


class Reader:
    """One generation of a store, read with SQLite and NumPy."""

    def __init__(self, folder):
        self.folder = folder
        self.database = sqlite3.connect(f"{(folder / 'store.db').resolve().as_uri()}?mode=ro", uri=True)
        self.database.row_factory = sqlite3.Row
        assert self.database.execute("PRAGMA application_id").fetchone()[0] == 0x52474531
        assert self.database.execute("PRAGMA user_version").fetchone()[0] == 2
        self.database.execute("BEGIN")
        self.segments = {row["key"]: row for row in self.database.execute("SELECT * FROM segments")}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.database.close()

    def meta(self, key, missing=None):
        row = self.database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return missing if row is None else json.loads(row["value"])

    def chunks(self):
        """Return the chunks by key, in order of insertion, as dictionaries."""
        rows = self.database.execute(
            "SELECT c.*, s.path FROM chunks c LEFT JOIN sources s ON s.id = c.source ORDER BY c.key"
        )
        chunks = {}
        for row in rows:
            chunk = dict(row)
            chunk["headings"], chunk["metadata"] = json.loads(row["headings"]), json.loads(row["metadata"])
            chunks[row["key"]] = chunk
        return chunks

    def rows(self, segment):
        """Return the rows of a segment by position."""
        found = self.database.execute("SELECT row FROM vectors WHERE segment = ? ORDER BY position", (segment,))
        return [row["row"] for row in found]

    def raw(self, segment):
        about = self.segments[segment]
        numbers = np.fromfile(self.folder / "segments" / about["folder"] / "raw.f16", "<f2")
        assert numbers.size == about["rows"] * self.meta("dim")
        return numbers.reshape(about["rows"], -1)

    def vectors(self):
        """Return the vector of each row."""
        made = {}
        for key in self.segments:
            raw = self.raw(key).astype(np.float32)
            made.update(zip(self.rows(key), unit(self.postprocess(raw, "documents")), strict=True))
        return made

    def postprocess(self, vectors, side):
        about = self.meta("embedder")
        if about["kind"] == "external":
            return vectors
        arrays = safetensors(self.folder / "embedders" / about["fingerprint"] / "state.safetensors")
        if side == "queries" and not any(name.startswith("chain.queries.") for name in arrays):
            side = "documents"
        for position, step in enumerate(about["config"]["postprocess"]):
            prefix = f"chain.{side}.{position}."
            fitted = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            vectors = STEPS[step.split(":")[0]](vectors, **fitted).astype(np.float32)
        return vectors

    def dense(self, vector, k):
        """Return id and cosine of the chunks nearest to a query vector."""
        question, vectors = unit(vector[None, :])[0], self.vectors()
        return self._best({key: float(vectors[chunk["row"]] @ question) for key, chunk in self.chunks().items()}, k)

    def lexical(self, question, k):
        """Return id and BM25 score of the chunks that match a query best."""
        return self._best(self._matches(question), k)

    def hybrid(self, vector, question, k):
        """Return id and fused score; for stores with fewer chunks than candidates and no hubness."""
        matches, chunks, vectors = self._matches(question), self.chunks(), self.vectors()
        assert len(chunks) <= 200
        assert not self.database.execute("SELECT * FROM derived WHERE name = 'hubness'").fetchall()
        fusion = self.meta("fusion", {"alpha": 0.6, "feedback": 0.75})
        alpha, feedback = fusion["alpha"], fusion["feedback"]

        def parts(vector, keys):
            dense = standardised([float(vectors[chunks[key]["row"]] @ vector) for key in keys])
            return alpha * dense, standardised([matches.get(key, 0.0) for key in keys])

        def fused(vector):
            dense, words = parts(vector, chunks)
            scores = (dense + (1 - alpha) * words).tolist()
            return sorted(zip(chunks, scores, strict=True), key=lambda found: (-found[1], found[0]))

        asked = unit(vector[None, :])[0]
        first = fused(asked)
        scores = np.array([score for _, score in first])
        best = [vectors[chunks[key]["row"]] for key, _ in first[:3]]
        moved = unit((asked + feedback * np.average(best, axis=0, weights=np.exp(scores / scores.std())[:3]))[None, :])[
            0
        ]
        found = fused(moved)
        least = found[:100][-1][1]
        compared = [key for key, score in found if score >= least]
        dense, words = parts(moved, compared)
        words += feedback * standardised(shared([embedded_text(chunks[key]) for key in compared]))
        scores = dense + (1 - alpha) * words / (words.std() if tells_apart(words) else 1.0)
        of_keys = dict(zip(compared, scores.tolist(), strict=True))
        rest = {key: score for key, score in found if key not in of_keys}
        above = max(0.0, max(rest.values(), default=-np.inf) - min(of_keys.values()))
        return self._best(of_keys | {key: score - above for key, score in rest.items()}, k)

    def _matches(self, question):
        question = normalised(question)
        expression = match_expression(question, self.meta("words", {"language": "english"})["language"])
        if not expression:
            return {}
        query = "SELECT rowid, -bm25(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ? ORDER BY rank, rowid"
        return dict(self.database.execute(query, (expression,)).fetchall())

    def of_term(self, term):
        """Return the BM25 score of each chunk that has a term of the full-text index, from postings."""
        lengths, counts = {}, {}
        for row in self.database.execute("SELECT * FROM derived WHERE name = 'postings'"):
            file = self.folder / "derived" / row["file"]
            assert sha256(file) == row["sha256"]
            arrays = safetensors(file)
            changed = "SELECT chunk FROM stale_postings WHERE generation > ?"
            stale = self.database.execute(changed, (row["made_at_generation"],))
            gone = {each["chunk"] for each in stale}
            assert (len(arrays["chunks"]), arrays["chunks"].max()) == (row["chunks"], row["last"])
            keys = arrays["chunks"].tolist()
            lengths |= {key: n for key, n in zip(keys, arrays["lengths"].tolist(), strict=True) if key not in gone}
            text = arrays["text"].tobytes()
            terms = [text[start:end].decode() for start, end in pairwise([0, *arrays["text_ends"].tolist()])]
            assert terms == sorted(terms, key=str.encode)
            places = dict(zip(terms, pairwise([0, *arrays["ends"].tolist()]), strict=True))
            inside = slice(*places.get(term, (0, 0)))
            positions, times = arrays["positions"][inside].tolist(), arrays["counts"][inside].tolist()
            have = zip(positions, times, strict=True)
            counts |= {keys[position]: f for position, f in have if keys[position] not in gone}
        assert lengths.keys() == self.chunks().keys()
        mean, total, n = sum(lengths.values()) / len(lengths), len(lengths), len(counts)
        logarithm = math.log((total - n + 0.5) / (n + 0.5))
        idf = logarithm if logarithm > 0 else 1e-6
        return {key: f * 2.2 / (f + 1.2 * (0.25 + 0.75 * lengths[key] / mean)) * idf for key, f in counts.items()}

    def _best(self, scores, k):
        chunks = self.chunks()
        order = sorted(scores, key=lambda key: (-scores[key], chunks[key]["path"] or "", key))
        return [(chunks[key]["id"], scores[key]) for key in order[:k]]


def unit(vectors):
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)


def shares(values, quantiles):
    """Return the share u of each value, shape (n, d)."""
    steps = np.linspace(0, 1, quantiles.shape[1])
    u = np.empty(values.shape)
    for column, points in enumerate(quantiles):
        x = values[:, column].astype(np.float64)
        inside = np.interp(x, points, steps)
        for i in np.flatnonzero(np.isin(x, points)):
            inside[i] = steps[points == x[i]][[0, -1]].mean()
        u[:, column] = np.where(x <= points[0], 0.0, np.where(x >= points[-1], 1.0, inside))
    return u


def normal(values, quantiles):
    u = shares(values, quantiles).astype(np.float32)
    u[values + 1e-7 > quantiles[:, -1]] = 1.0
    u[values - 1e-7 < quantiles[:, 0]] = 0.0
    return np.vectorize(NormalDist().inv_cdf)(np.clip(u.astype(np.float64), 1e-7, 1 - 1e-7))


def without_top(values, mean, directions):
    y = values - mean
    return y - (y @ directions.T) @ directions


STEPS = {
    "center": lambda x, mean: x - mean,
    "zscore": lambda x, mean, scale: (x - mean) / scale,
    "robust": lambda x, median, scale: (x - median) / scale,
    "whiten": lambda x, mean, directions, scale: ((x - mean) @ directions.T) / scale,
    "abtt": without_top,
    "common": lambda x, directions, weights: x - (x @ directions.T * weights) @ directions,
    "common-weighted": lambda x, directions, weights: x - (x @ directions.T * weights) @ directions,
    "quantile-u": shares,
    "quantile-n": normal,
    "normalize": unit,
}


def standardised(scores):
    scores = np.array(scores)
    return (scores - scores.mean()) / scores.std() if tells_apart(scores) else np.zeros(len(scores))


def tells_apart(scores):
    return scores.std() > 1e-6 * np.abs(scores).max()


def shared(texts):
    """Return how much each text shares the words of the first three."""
    words = [Counter(re.findall(r"\w+", cut(text).lower())) for text in texts]
    holding = Counter(chain.from_iterable(words))
    mean = max(sum(map(Counter.total, words)) / len(texts), 1)

    def weight(word, counts):
        frequent = counts[word] * 2.2 / (counts[word] + 1.2 * (0.25 + 0.75 * counts.total() / mean))
        return frequent * math.log(1 + (len(texts) - holding[word] + 0.5) / (holding[word] + 0.5))

    weights = [{word: weight(word, counts) for word in counts} for counts in words]
    wanted = {word: sum(best.get(word, 0.0) for best in weights[:3]) for word in holding}
    return [sum(weight * wanted[word] for word, weight in each.items()) for each in weights]


TABLE = PAGE.split("| script | ranges |", 1)[1].split("\n\n", 1)[0]
RANGES = re.findall(r"\b[0-9A-F]{4,5}(?:-[0-9A-F]{4,5})?", TABLE)
UNSPACED = [[int(end, 16) for end in ends.split("-")] for ends in RANGES]
ARABIC, HEBREW = "\u0640\u064b-\u0652\u0670", "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
WORD = re.compile(r"[^\W_]+")
LEFT_OUT = re.compile(f"[\ufe00-\ufe0f\U000e0100-\U000e01ef{ARABIC}{HEBREW}]")


def runs(text):
    """Yield the texts between runs of scripts without spaces, and these runs as lists of letters with their marks."""
    text = re.sub(r"(?<!\w)([cC]\+\+|[cCfF]#)(?![a-zA-Z_+#])", lambda name: f" {spelt(name[0])} ", text)
    text = re.sub("[\uff01-\uffee]+", lambda run: unicodedata.normalize("NFKC", run[0]), text)
    text = LEFT_OUT.sub("", text)
    for unspaced, run in groupby(text, lambda letter: any(ends[0] <= ord(letter) <= ends[-1] for ends in UNSPACED)):
        run = "".join(run)
        if unspaced:
            letters = []
            for letter in unicodedata.normalize("NFKC", run):
                if letters and unicodedata.category(letter).startswith("M"):
                    letters[-1] += letter
                else:
                    letters.append(letter)
            yield letters
        else:
            yield run


def tokens(text):
    """Return words as texts, and runs of scripts without spaces as lists of letters with their marks."""
    return list(chain.from_iterable([run] if isinstance(run, list) else WORD.findall(run) for run in runs(text)))


def cut(text):
    """Return the text for the full-text index of a language without a stemmer."""
    return "".join(run if isinstance(run, str) else f" {' '.join([*pairs(run), run[-1]])} " for run in runs(text))


def spelt(name):
    return name.replace("+", "plus").replace("#", "sharp")


def pairs(letters):
    return ["".join(pair) for pair in pairwise(letters)]


def phrase(text):
    """Return an FTS5 expression; words are joined by spaces."""
    *before, last = tokens(text)
    terms = [[token] if isinstance(token, str) else [*pairs(token), token[-1]] for token in before]
    ends = [last] if isinstance(last, str) else pairs(last) or last
    return f'"{" ".join([*chain.from_iterable(terms), *ends])}"' + "*" * (last == ends and last != [])


def parts(piece):
    """Return the parts of a query, and whether each is a prefix."""
    for token in tokens(piece):
        if isinstance(token, str):
            yield token, False
        else:
            yield from ((pair, False) for pair in pairs(token)) if len(token) > 1 else [(token[0], True)]


INVISIBLE = "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"


def normalised(text):
    """Return a query after the changes of searched texts; for queries without fractions and free-standing accents."""
    letters = [
        letter if unicodedata.category(letter).startswith("P") else unicodedata.normalize("NFKC", letter)
        for letter in re.sub(INVISIBLE, "", text)
    ]
    return unicodedata.normalize("NFC", "".join(letters))


def match_expression(question, language):
    question = re.sub("[\x00-\x1f\ud800-\udfff]", " ", question)
    found = [phrase(text) for text in re.findall(r'"([^"]*)"', question) if any(map(str.isalnum, text))]
    pieces = re.sub(r'"[^"]*"', " ", question).replace('"', " ").split()
    found += phrases_of(piece for piece in pieces if not is_stop_word(piece, question, language))
    found = found or phrases_of(pieces)
    return " OR ".join(list(dict.fromkeys(found))[:1000])


STOP_WORDS = "|".join(re.split(r"\[\w+\]", files("ragembed").joinpath("stop_words.txt").read_text())[1].split())


def is_stop_word(piece, question, language):
    if piece.isupper() and len(piece) > 1 and not question.isupper():
        return False
    word = re.sub("^[^a-z]+|[^a-z]+$", "", piece.lower().replace("’", "'"))
    return language == "english" and re.fullmatch(f"({STOP_WORDS})('(s|d|m|ll|re|ve))?|[a-z]+'t", word) is not None


def phrases_of(pieces):
    found = []
    for piece in pieces:
        inside = list(parts(piece))
        if len(inside) > 1:
            found.append(phrase(piece))
            inside = [(part, prefix) for part, prefix in inside if len(part) > 1 and not prefix]
        found += [f'"{part}"' + "*" * prefix for part, prefix in inside]
    return found


def embedded_text(chunk):
    context = list(chunk["headings"])
    if chunk["title"] and chunk["title"] not in context:
        context.insert(0, chunk["title"])
    text = chunk["text"] if chunk["searched"] is None else chunk["searched"]
    if context and context[-1] in text.split("\n")[0]:
        del context[-1]
    return " > ".join(context) + "\n" + text if context else text


def safetensors(file):
    data = file.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    types = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "U8": "u1", "U16": "<u2", "U32": "<u4"}
    arrays = {}
    for name, about in json.loads(data[8 : 8 + length]).items():
        start, end = (8 + length + offset for offset in about["data_offsets"])
        arrays[name] = np.frombuffer(data[start:end], types[about["dtype"]]).reshape(about["shape"])
    return arrays


HEADER = struct.Struct("<4siqqq?i")


class Numbers:
    """Numbers of a file, read one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def read(self, kind, count):
        found = np.frombuffer(self.data, kind, count, self.at)
        self.at += found.nbytes
        return found

    def one(self, kind):
        return self.read(kind, 1)[0].item()

    def array(self, kind):
        return self.read(kind, self.one("<u8"))

    def name(self):
        return self.read("S4", 1)[0].decode()

    def header(self):
        kind, dim, rows, _, _, trained, metric = HEADER.unpack(self.read("u1", HEADER.size).tobytes())
        assert (trained, metric) == (True, 0)
        return kind.decode(), dim, rows


def index_contents(data):
    """Return the ids and vectors of an index of a named kind."""
    numbers = Numbers(data)
    found = part(numbers)
    assert numbers.at == len(data)
    return found


def part(numbers):
    kind, dim, rows = numbers.header()
    if kind == "IxMp":
        inside = part(numbers)
        return numbers.array("<i8"), inside
    if kind == "IxFI":
        return numbers.array("<f4").reshape(rows, dim)
    if kind == "IxSQ":
        decode = scalar_quantiser(numbers, dim)
        return decode(numbers.array("u1").reshape(rows, -1))
    if kind in ("IHNf", "IHNs"):
        graph(numbers, rows)
        return part(numbers)
    assert kind in ("IwFl", "IwSq", "IwPQ")
    count, one = numbers.read("<u8", 2)
    centroids = part(numbers)
    assert (one, len(centroids), numbers.one("u1"), len(numbers.array("<i8"))) == (1, count, 0, 0)
    residuals, size, decode = 0, 4 * dim, lambda codes: np.frombuffer(codes.tobytes(), "<f4").reshape(-1, dim)
    if kind == "IwSq":
        decode = scalar_quantiser(numbers, dim)
        size, residuals = numbers.one("<u8"), numbers.one("u1")
    elif kind == "IwPQ":
        residuals, size = numbers.one("u1"), numbers.one("<u8")
        decode = product_quantiser(numbers, dim, size)
    return lists(numbers, centroids, residuals, size, decode)


def scalar_quantiser(numbers, dim):
    """Return a function that turns codes, uint8, shape (n, bytes), into vectors."""
    kind, zero = numbers.read("<i4", 2)
    assert (zero, numbers.one("<f4"), numbers.one("<u8")) == (0, 0.0, dim)
    size, bounds = numbers.one("<u8"), numbers.array("<f4")
    assert (kind, size, len(bounds)) in ((4, 2 * dim, 0), (0, dim, 2 * dim))
    if kind == 4:
        return lambda codes: np.frombuffer(codes.tobytes(), "<f2").astype(np.float32).reshape(-1, dim)
    return lambda codes: bounds[:dim] + bounds[dim:] * (codes + np.float32(0.5)) / 255


def product_quantiser(numbers, dim, size):
    assert numbers.read("<u8", 3).tolist() == [dim, size, 8]
    words = numbers.array("<f4").reshape(size, 256, dim // size)
    return lambda codes: words[np.arange(size), codes].reshape(-1, dim)


def graph(numbers, rows):
    shares, links_up_to = numbers.array("<f8"), numbers.array("<i4")
    assert shares.sum() == pytest.approx(1, abs=1e-3)
    levels, begins, links = numbers.array("<i4"), numbers.array("<u8"), numbers.array("<i4")
    assert links_up_to[levels].tolist() == np.diff(begins.astype(int)).tolist()
    assert (begins[-1], links.min() >= -1, links.max() < rows) == (len(links), True, True)
    entry, highest = numbers.read("<i4", 5)[:2]
    assert (levels[entry], levels.max()) == (highest + 1, highest + 1)


def lists(numbers, centroids, residuals, size, decode):
    name, (count, bytes_of_code), how = numbers.name(), numbers.read("<u8", 2), numbers.name()
    assert (name, count, bytes_of_code) == ("ilar", len(centroids), size)
    sizes = numbers.array("<u8").tolist()
    assert how == "full"
    ids, vectors = [], []
    for number, length in enumerate(sizes):
        decoded = decode(numbers.read("u1", length * size).reshape(length, size))
        vectors.append(decoded + residuals * centroids[number])
        ids.append(numbers.read("<i8", length))
    return np.concatenate(ids), np.concatenate(vectors)


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


# Stores to read

GUIDE = """\
# Locks

The writer holds the lock of the store.

## Readers

A reader never waits: faiss.IndexFlat is mapped.

## Readers and writers

Two readers, one writer, "no lock" for readers.
"""
QUERIES = [
    "writer lock",
    '"no lock" segment',
    "faiss.IndexFlat",
    "zebra: wing!",
    'a "b c',
    "x\ny \ud800 z\0",
    "seven",
]


def sentence(number):
    return " ".join(WORDS[(7 * number + step * step) % len(WORDS)] for step in range(6))


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_config):
    """A store with files, a table, chunks of a program, several segments, tombstones and a skipped file."""
    base = tmp_path_factory.mktemp("format")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(base / "cache"))
        docs = base / "docs"
        docs.mkdir()
        (docs / "guide.md").write_text(GUIDE)
        (docs / "copy.MD").write_text(GUIDE)
        (docs / "Makefile").write_text("all the red wings\n")
        (docs / "empty.txt").write_text(" \n")
        rows = "\n".join(f"{sentence(i)},{1900 + i}" for i in range(60))
        (docs / "table.csv").write_text("text,year\n" + rows + "\n")
        options, wanted = IndexingOptions(text_columns=("text",)), IndexConfig(budget=Budget(max_memory=10**9))
        index_files(IndexingRequest(base / "store", (docs,), options, tiny_config, wanted))
        (docs / "table.csv").write_text("text,year\n" + "\n".join(rows.split("\n")[:50]) + "\nthe cat sleeps,2000\n")
        index_files(IndexingRequest(base / "store", (docs,)))
        with Store.open(base / "store") as store:
            store.add(
                [
                    record("plain", "a bird flies"),
                    record("with all", "body of it", title="Title \ud800", headings=("One", "Two"), page=3),
                    record("no title", "Two wings", title="", headings=("Two",), metadata={"é": [None, {"a": 1.5}]}),
                ]
            )
            with store.writer() as writer:
                writer.set_meta(
                    {"fusion": {"method": "zscore", "alpha": 0.5, "feedback": 1.5, "rrf_k": 60.0, "hubness": 0.5}}
                )
    return base / "store"


@pytest.fixture
def reader(made):
    with Reader(made) as opened:
        yield opened


@pytest.fixture
def store(made):
    with Store.open(made) as opened:
        yield opened


# Tests of the reader


def test_chunks_with_their_files_and_metadata(reader, store):
    fields = ("id", "path", "text", "title", "start_line", "end_line", "page", "tokens", "metadata")
    read = [(*(each[name] for name in fields), tuple(each["headings"])) for each in reader.chunks().values()]
    assert read == [
        (kept.id, kept.source, *(getattr(kept.chunk, name) for name in fields[2:]), kept.chunk.headings)
        for kept in store.chunks()
    ]
    assert {each["path"] for each in reader.chunks().values()} >= {"docs/guide.md", "docs/table.csv", None}
    assert {"year": "1907"} in [each["metadata"] for each in reader.chunks().values()]


def test_sources_and_their_hashes(reader, store):
    sources = reader.database.execute("SELECT * FROM sources").fetchall()
    assert {row["path"]: row["ext"] for row in sources} == {
        "docs/guide.md": "md",
        "docs/copy.MD": "md",
        "docs/table.csv": "csv",
        "docs/Makefile": "",
    }
    for row in sources:
        file = reader.folder.parent / row["path"]
        assert (row["size"], row["mtime_ns"], row["sha256"]) == (
            file.stat().st_size,
            file.stat().st_mtime_ns,
            sha256(file),
        )
    skipped = reader.database.execute("SELECT path, reason FROM skipped").fetchall()
    assert {row["path"]: row["reason"] for row in skipped} == store.status()["skipped"] != {}


def test_hashes_of_segments_and_embedders(reader):
    assert len(reader.segments) > 1
    for about in reader.segments.values():
        folder = reader.folder / "segments" / about["folder"]
        assert (about["raw_sha256"], about["index_sha256"]) == (
            sha256(folder / "raw.f16"),
            sha256(folder / "index.faiss"),
        )
    about = reader.meta("embedder")
    folder = reader.folder / "embedders" / about["fingerprint"]
    assert about["files"] == {file.name: sha256(file) for file in folder.iterdir()}
    [queries] = reader.database.execute("SELECT * FROM derived").fetchall()
    [file] = (reader.folder / "derived").iterdir()
    assert (queries["name"], queries["sha256"]) == ("queries", sha256(file))
    assert file.name == queries["file"] == f"queries-{queries['sha256'][:16]}.safetensors"
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["state_sha256"] == about["files"]["state.safetensors"]
    assert {name: config[name] for name in ("fingerprint", "config", "fitted_on")} == {
        name: about[name] for name in ("fingerprint", "config", "fitted_on")
    }
    assert (reader.folder.parent / about["model_beside"]).resolve() == Path(about["model"])


def test_postings_give_the_scores_of_the_full_text_index(tmp_path, monkeypatch):
    monkeypatch.setattr(posting_files, "LEAST_CHUNKS", 1)
    with Store.create(tmp_path / "s", KnownEncoder()) as store:
        for first in (0, 40, 60, 70):
            texts = {f"id{i}": " ".join(WORDS[i % 7 : i % 11 + 3] * (1 + i % 3)) for i in range(first, first + 20)}
            store.add(record(name, text, title=WORDS[len(text) % 5]) for name, text in texts.items())
        store.delete(["id3", "id50"])
    with Reader(tmp_path / "s") as reader:
        for word, term in (("the", "the"), ("lock", "lock"), ("reader", "reader"), ("missing", "miss")):
            matches = reader.database.execute(
                "SELECT rowid, -bm25(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ?", (word,)
            )
            assert reader.of_term(term) == pytest.approx(dict(matches.fetchall()))
        assert reader.of_term("lock")


def test_hashes_of_texts(reader):
    hashes = dict(reader.database.execute("SELECT row, text_hash FROM vectors").fetchall())
    for each in reader.chunks().values():
        assert hashes[each["row"]] == hashlib.blake2b(embedded_text(each).encode(), digest_size=16).digest()


def test_ids_of_chunks_of_files(reader):
    seen = {}
    for each in reader.chunks().values():
        if each["path"] is None:
            continue
        copy = seen[each["path"], each["text"]] = seen.get((each["path"], each["text"]), -1) + 1
        key = f"{each['path']}\0{copy}\0{each['text']}".encode()
        assert each["id"] == hashlib.blake2b(key, digest_size=12).hexdigest()


def test_every_vector_is_used_or_a_tombstone(reader):
    used = {each["row"] for each in reader.chunks().values()}
    dead = {row[0] for row in reader.database.execute("SELECT row FROM tombstones")}
    assert dead
    assert used.isdisjoint(dead)
    assert used | dead == {row for key in reader.segments for row in reader.rows(key)}


def test_rows_of_a_segment_ascend(reader):
    for key, about in reader.segments.items():
        assert reader.rows(key) == sorted(reader.rows(key))
        positions = reader.database.execute("SELECT position FROM vectors WHERE segment = ? ORDER BY 1", (key,))
        assert [row[0] for row in positions] == list(range(about["rows"]))


def test_vectors(reader, store):
    vectors, chunks = reader.vectors(), list(reader.chunks().values())
    assert reader.meta("embedder")["config"]["postprocess"] == ["center", "normalize"]
    assert reader.meta("embedder")["fitted_on"]["documents"] > 0
    read = np.array([vectors[each["row"]] for each in chunks])
    np.testing.assert_allclose(read, store.vectors([each["id"] for each in chunks]), atol=1e-6)


NEARNESS = {
    "flat": 1e-6,
    "fp16": 5e-4,
    "sq8": 0.01,
    "hnsw": 1e-6,
    "hnsw-sq8": 0.01,
    "ivf": 1e-6,
    "ivf-sq8": 0.01,
    "ivf-pq": 0.6,
}
"""By how much a number may differ from the vector's."""


@pytest.mark.parametrize("kind", NAMES)
def test_indexes_of_every_kind(tmp_path, encoder, kind, monkeypatch):
    monkeypatch.setattr(segments, "LEAST_APPROXIMATE", 256)
    with Store.create(tmp_path / "store", encoder, index=kind) as store, store.writer() as writer:
        writer.stage([sentence(i) + str(i) for i in range(700)])
    with Reader(tmp_path / "store") as reader:
        [(key, about)] = reader.segments.items()
        assert (about["kind"], about["rows"], about["dim"]) == (kind, 700, 8)
        file = reader.folder / "segments" / about["folder"] / "index.faiss"
        ids, stored = index_contents(file.read_bytes())
        assert ids.tolist() == reader.rows(key) or kind.startswith("ivf")
        assert sorted(ids.tolist()) == reader.rows(key)
        vectors = reader.vectors()
        np.testing.assert_allclose(stored, [vectors[row] for row in ids.tolist()], atol=NEARNESS[kind])
        read = SegmentIndex(file, IndexSpec(kind), 700, 8).contents()
        of_faiss = dict(chain.from_iterable(zip(rows, found, strict=True) for rows, found in read))
        np.testing.assert_allclose(stored, [of_faiss[row] for row in ids.tolist()], atol=1e-6)


@pytest.mark.parametrize("question", QUERIES)
def test_dense_search(reader, store, question):
    vector = store.embedder.encode_queries([question])[0]
    assert_same_hits(reader.dense(vector, 12), store.search_vector(vector, 12))


@pytest.mark.parametrize("question", [*QUERIES, "?!", "flie sleeping", '"writer the"'])
def test_lexical_search(reader, store, question):
    assert_same_hits(reader.lexical(question, 12), store.search(question, 12, "lexical"))


WORDED = {
    "code": "Call faiss.IndexFlat from C++ in a/b.py: it's fast, x-rays are not. Write to a@example.org",
    "other": "An IndexFlat of C, or of C#; the index is flat. snake_case_name",
    "letters": "東京都の地図とPython入門。猫",
    "more letters": "京都の地図 tokyo、黒猫の本３冊ｶﾞｲﾄﾞ",
    "marks": "ภาษาไทย 葛\ufe00城 كِتاب",
}


@pytest.mark.parametrize("language", ["english", "none"])
def test_words_of_any_kind(tmp_path, encoder, language):
    with Store.create(tmp_path / "s", encoder, language=language) as store:
        store.add(record(name, text, searched=text + " too") for name, text in WORDED.items())
        with Reader(tmp_path / "s") as reader:
            for text in [*WORDED.values(), *map('"{}"'.format, WORDED.values())]:
                for question in (text, *text.split(), text[3:9], text[4:6]):
                    hits = store.search(question, 9, "lexical")
                    assert_same_hits(reader.lexical(question, 9), hits)
            assert hits != []
            for text in WORDED.values():
                vector = encoder.encode_queries([normalised(text)])[0]
                assert_same_hits(reader.hybrid(vector, text, 9), store.search(text, 9))


@pytest.mark.parametrize("question", QUERIES)
def test_hybrid_search(reader, store, question):
    vector = store.embedder.encode_queries([question])[0]
    assert_same_hits(reader.hybrid(vector, question, 12), store.search(question, 12))


@pytest.mark.parametrize("k", [12, 100, 150])
def test_hybrid_search_compares_a_part_of_the_candidates_by_words(tmp_path, encoder, k):
    with Store.create(tmp_path / "s", encoder) as store:
        store.add(record(f"{i}-{copy}", f"{sentence(i)} {i}") for i in range(50) for copy in range(3))
        question = f"{sentence(3)} 21"
        with Reader(tmp_path / "s") as reader:
            assert reader.meta("fusion") is None
            read = reader.hybrid(encoder.encode_queries([question])[0], question, k)
        assert_same_hits(read, store.search(question, k))


def assert_same_hits(read, hits):
    assert [chunk_id for chunk_id, _ in read] == [hit.id for hit in hits]
    assert [score for _, score in read] == pytest.approx([hit.score for hit in hits], abs=1e-5)


def test_digests(reader):
    """A row's hash is that of its values, each with its type and length."""
    tables = {row["name"]: (row["rows"], row["sum"]) for row in reader.database.execute("SELECT * FROM digests")}
    assert len(tables) == 11
    for table, digest in tables.items():
        rows = [tuple(row) for row in reader.database.execute(f"SELECT * FROM {table}")]
        assert digest == (len(rows), sum(map(row_hash, rows)) % 2**60), table


def row_hash(row):
    encoded = b""
    for value in row:
        match value:
            case None:
                encoded += b"n"
            case int():
                encoded += f"i{value};".encode()
            case float():
                encoded += f"r{value!r};".encode()
            case str():
                encoded += f"t{len(value.encode())}:{value}".encode()
            case bytes():
                encoded += f"b{len(value)}:".encode() + value
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "big") >> 4


STEP_LISTS = [
    ["center"],
    ["zscore", "normalize"],
    ["robust"],
    ["whiten"],
    ["whiten:4", "normalize"],
    ["abtt:2", "normalize"],
    ["common", "normalize"],
    ["common-weighted:3"],
    ["quantile-u"],
    ["quantile-n", "center"],
    [],
]


@pytest.mark.parametrize("query_fit", ["separate", "shared"])
@pytest.mark.parametrize("steps", STEP_LISTS, ids=",".join)
def test_every_post_processor(tmp_path, tiny_config, steps, query_fit):
    texts = [sentence(i) for i in range(48)]
    embedder = Embedder(tiny_config.replace(postprocess=tuple(steps), query_fit=query_fit)).fit(texts)
    with Store.create(tmp_path / "store", embedder) as store:
        store.add([record(text, text) for text in texts])
        expected = store.vectors(texts)
    with Reader(tmp_path / "store") as reader:
        vectors = reader.vectors()
        read = [vectors[each["row"]] for each in reader.chunks().values()]
        np.testing.assert_allclose(read, expected, atol=1e-5)
        queries = reader.postprocess(embedder.raw_queries(texts[:5]), "queries")
        np.testing.assert_allclose(queries, embedder.encode_queries(texts[:5]), atol=1e-4)


def test_commits_in_the_log_are_read_and_left_there(tmp_path, encoder):
    with Store.create(tmp_path / "store", encoder) as store:
        store.add([record("b", "bird")])
        with store.writer() as writer:
            writer.stage(["cat"])
            writer.commit(chunks=[record("c", "cat")])
            killed = shutil.copytree(tmp_path / "store", tmp_path / "killed")
    log = (killed / "store.db-wal").read_bytes()
    with Reader(killed) as reader:
        assert [each["id"] for each in reader.chunks().values()] == ["b", "c"]
    assert (killed / "store.db-wal").read_bytes() == log != b""
    with Store.open(killed, encoder) as store:
        assert store.verify().problems == []


def test_the_lock_is_one_that_others_can_take(tmp_path, encoder):
    fcntl = pytest.importorskip("fcntl")
    with Store.create(tmp_path / "store", encoder) as store, (tmp_path / "store" / "writer.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(StoreLockedError):
            store.add([record("b", "bird")])
        fcntl.flock(lock, fcntl.LOCK_UN)
        store.add([record("b", "bird")])


# The pages name everything that a store holds.


def section(heading):
    """Return a section of the pages, without its subsections."""
    return re.split(r"^#+ ", PAGE.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def test_every_table_and_column_is_described(reader):
    names = [row["name"] for row in reader.database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    tables = [name for name in names if not name.startswith(("sqlite_", "chunks_fts_"))]
    assert len(tables) == 15
    for table in tables:
        described = section(table)
        for column in reader.database.execute(f"PRAGMA table_info({table})"):
            assert f"`{column['name']}`" in described, (table, column["name"])
            if f"| `{column['name']}` |" in described:
                assert column["type"] in described, (table, column["name"])


def test_every_key_of_the_metadata_is_described(reader):
    described = section("meta")
    first, *rest = re.split(r"^The object `(\w+)`", described, flags=re.MULTILINE)
    keys_of = {
        name: set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
        for name, text in [("meta", first), *zip(rest[::2], rest[1::2], strict=True)]
    }
    kept = {row["key"]: json.loads(row["value"]) for row in reader.database.execute("SELECT key, value FROM meta")}
    assert set(kept) == keys_of["meta"] - {"part"}  # this store has none
    assert set(PartRecord("", 1, None).to_dict()) == keys_of["part"]
    for name in ("embedder", "words", "index", "index_choice", "index_check"):
        assert set(kept[name]) == keys_of[name], name
    assert kept["index_choice"]["wanted"] == kept["index"]
    measurement = kept["index_check"]["measurement"]
    inside = [*kept["embedder"]["fitted_on"], *measurement, *measurement["recall"]]
    inside += chain.from_iterable(kept[name] for name in ("boilerplate", "fusion", "indexing", "wanted"))
    assert [name for name in inside if f"`{name}`" not in described] == []


def test_every_file_is_described(made):
    described = section("Files")
    for file in made.rglob("*"):
        if file.is_file():
            assert re.sub(r"-[0-9a-f]{16}\.", "-<16 hex digits>.", file.name) in described, file


def test_every_field_and_array_of_an_embedder_is_described(reader):
    described = section("Embedder files")
    (folder,) = (reader.folder / "embedders").iterdir()
    for name in json.loads((folder / "config.json").read_text(encoding="utf-8")):
        assert f"`{name}`" in described, name
    arrays = safetensors(folder / "state.safetensors")
    assert len(arrays) == 5
    for name in arrays:
        general = re.sub(r"^chain\.(\w+)\.\d+\.\w+$", r"chain.\1.<position>.<name>", name)
        assert f"`{general}`" in described, name


def test_queries_of_a_fit_are_as_described(reader, store):
    [file] = (reader.folder / "derived").glob("queries-*")
    arrays = safetensors(file)
    described = section("Queries of the fit")
    assert all(f"`{name}`" in described for name in arrays)
    [(last_row, vectors)] = reader.database.execute("SELECT last, chunks FROM derived WHERE name = 'queries'")
    assert last_row >= vectors >= 32
    raw = np.concatenate([reader.raw(key) for key in reader.segments])
    texts = arrays["texts"].tobytes().decode("utf-8").split("\n")
    assert arrays["raw"].shape == (len(texts), raw.shape[1])
    words = " ".join(" ".join(record.chunk.embedded_text.split()) for record in store.chunks())
    # Pseudo-queries from chunks that were deleted later are not in the store.
    assert sum(text in words for text in texts) > len(texts) / 2


def test_every_step_of_a_chain_is_described():
    rows = re.findall(r"^\| (`.*?) \|", section("From raw vectors to embeddings"), re.MULTILINE)
    assert {re.split("[`:]", row)[1] for row in rows} == set(POSTPROCESSORS) == set(STEPS)
    assert {step.split(":")[0] for steps in STEP_LISTS for step in steps} == set(STEPS)


@pytest.mark.parametrize("kind", NAMES)
def test_every_kind_of_index_begins_as_described(tmp_path, kind):
    vectors = unit(np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32))
    build_index(parse_spec(kind), ArrayVectors(vectors), np.arange(300), tmp_path / "index.faiss")
    (described,) = re.findall(rf"^\| `{kind}` \|.*\|(.*)\|$", section("index.faiss"), re.MULTILINE)
    types = re.findall(r"`(\w+)`", described)
    data = (tmp_path / "index.faiss").read_bytes()
    headers = [HEADER.unpack_from(data, HEADER.size * i) for i in range(len(types))]
    assert [(header[0].decode(), *header[1:3], *header[5:]) for header in headers] == [
        (name, 8, 300, True, 0) for name in types
    ]


@pytest.mark.parametrize("kind", ["PCA4,IVF4,Flat", "IVF4,SQ6", "PCA4,Flat", "SQ6", "HNSW8,Flat", "IVF4_HNSW8,Flat"])
def test_an_index_of_a_factory_string_begins_as_described(tmp_path, kind):
    vectors = unit(np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32))
    build_index(parse_spec(kind), ArrayVectors(vectors), np.arange(300), tmp_path / "index.faiss")
    numbers = Numbers((tmp_path / "index.faiss").read_bytes())
    outermost = faiss.serialize_index(faiss.index_factory(8, kind, faiss.METRIC_INNER_PRODUCT))[:4].tobytes().decode()
    expected = [outermost] if "IVF" in kind else ["IxMp", outermost]
    assert [numbers.header() for _ in expected] == [(name, 8, 300) for name in expected]


def test_the_version_that_is_described_is_the_one_that_is_made(made):
    with closing(sqlite3.connect(made / "store.db")) as database:
        version = database.execute("PRAGMA user_version").fetchone()[0]
    assert f"Format version {version}." in PAGE
