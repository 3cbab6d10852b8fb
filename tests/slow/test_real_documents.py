"""Real documents and the default model: sensible questions find sensible places."""

import json
from pathlib import Path

import numpy as np
import pytest

from ragembed.indexes import Store
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("needs_minilm")]


def found(store, question, k=3):
    return [hit.source for hit in store.search(question, k)]


@pytest.fixture(scope="module")
def own_source(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "store"
    report = index_files(IndexingRequest(path, (ROOT / "indexes", ROOT / "cli", ROOT / "docs")))
    assert len(report.scan.added) > 30
    with Store.open(path) as store:
        yield store


@pytest.mark.parametrize(
    ("question", "place"),
    [
        ("how is the process that holds the lock named", "indexes/storage/lock.py"),
        ("standardise scores and add them", "indexes/search/fusion.py"),
        ("half precision, little-endian, row after row", "docs/reference/store-files.md"),
        ("terminal hyperlink to a file", "cli/output.py"),
        ("temporary file of chunks between two passes of indexing", "indexes/indexing/scan.py"),
        ("which words of the query are highlighted", "indexes/search/snippet.py"),
        ("post-processors fitted separately for queries, on pseudo-queries", "docs/reference/post-processors.md"),
    ],
)
def test_queries_about_the_projects_own_source(own_source, question, place):
    assert any(source.endswith(place) for source in found(own_source, question))


PAPERS = (
    ("how do hot kettles hurt people", "office/handbook"),
    ("how often must limescale be removed with hard water", "office/handbook"),
    ("may children use the kettle alone", "office/handbook"),
    ("which kettle models sold best", "office/sales"),
    ("remark of the speaker about the first quarter", "office/sales"),
    ("price of the gooseneck kettle", "office/stock"),
    ("who counts the stock", "office/stock"),
    ("comment on a hyperlink in a document", "office/word-comments.docx"),
    ("slide with a table of cell texts", "office/powerpoint-table.pptx"),
    ("quantity of pears", "office/excel-tables.xlsx"),
    ("how to unsubscribe from the ppp mailing list", "mail/digest.eml"),
    ("message in quoted printable encoding", "mail/encodings.eml"),
    ("email that contains another email", "mail/outlook"),
    ("outer body", "mail/outlook-attached-mail.msg"),
    ("where are shared libraries installed with multiarch", "pdf/tables.pdf"),
    ("override_dh_install for DEB_HOST_MULTIARCH", "pdf/tables.pdf"),
    ("contents of the guide for Debian maintainers", "pdf/manual.pdf"),
    ("fix by tar-ignore or extend-diff-ignore", "pdf/manual.pdf"),
    ("secret words", "pdf/owner-password.pdf"),
    ("الخط الأميري", "pdf/arabic.pdf"),
)
"""Queries about the PDF, mail and Office files of ``tests/data``, with a part of the path that answers them."""


def test_queries_about_pdf_mail_and_office_files(tmp_path):
    for package in ("pypdfium2", "olefile", "xlrd"):
        pytest.importorskip(package)
    index_files(IndexingRequest(tmp_path / "store", (ROOT / "tests" / "data",)))
    with Store.open(tmp_path / "store") as store:
        missed = [query for query, place in PAPERS if not any(place in source for source in found(store, query, 5))]
    assert len(missed) <= len(PAPERS) // 10, missed


def test_human_judgements_on_cranfield(tmp_path, collections):
    """The whole path over one file of abstracts; floors a little below what was measured."""
    folder = collections / "retrieval" / "cran"
    lines = (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    names = {number: json.loads(line)["_id"] for number, line in enumerate(lines, 1)}
    store_path = tmp_path / "store"
    index_files(IndexingRequest(store_path, (folder / "corpus.jsonl",)))
    judged: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, gain = line.split("\t")
        judged.setdefault(query, {})[document] = int(gain)
    queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    scores = {"dense": [], "lexical": [], "hybrid": []}
    with Store.open(store_path) as store:
        for mode, reached in scores.items():
            for query in queries:
                gains = judged[query["_id"]]
                hits = store.search(query["text"], 30, mode)
                ranked = list(dict.fromkeys(names[hit.chunk.start_line] for hit in hits))[:10]
                reached.append(discounted(gains.get(name, 0) for name in ranked) / discounted(ideal(gains)))
    means = {mode: 100 * np.mean(reached) for mode, reached in scores.items()}
    assert means["dense"] > 39
    assert means["lexical"] > 36
    assert means["hybrid"] > 43


def ideal(gains):
    return sorted(gains.values(), reverse=True)[:10]


def discounted(gains):
    return sum(gain / np.log2(rank + 2) for rank, gain in enumerate(gains))
