"""Ranking options of ``ragembed query``: near-duplicates, results per file, reranking, MMR."""

import importlib.util
import json
import zipfile
from pathlib import Path

import pptx
import pytest

from ragembed import Store
from ragembed.reranking import ModelReranker
from ragembed.serving.stores import ServedStores
from ragembed.serving.tools import StoreTools
from ragembed.version import install_command
from tests.cross_encoders import known_score, make_cross_encoder
from tests.documents.office_files import make_xlsx, row_of
from tests.documents.test_readers_pdf import make_pdf
from tests.multi_vectors import make_multi_vector

GUIDE = (
    "# Guide\n\nThe writer takes the lock of the store before it adds a segment, and gives it back when the "
    "transaction is committed. A reader never waits: it sees the generation that was current when it began, whatever "
    "the writer does meanwhile.\n"
)


@pytest.fixture(scope="session")
def cross_encoder(tmp_path_factory):
    return make_cross_encoder(tmp_path_factory.mktemp("cross-encoder"))


def write_copies(docs):
    for name, text in (("a", GUIDE), ("b", GUIDE.upper()), ("c", GUIDE + "\nThat is the writer.\n")):
        (docs / f"guide-{name}.md").write_text(text)
    (docs / "errors.csv").write_text(
        "code,message\n" + "".join(f"{code},the lock of the store is held by another writer\n" for code in (5, 6, 7))
    )


@pytest.fixture
def copies(indexed_with):
    """The files of ``docs``, and a guide with two copies: one in upper case, one with another sentence."""
    return indexed_with(write_copies)


def results(cli, *args, **settings):
    return json.loads(cli("query", *args, "--json", **settings).stdout)["results"]


def write_workbook(docs):
    sheets = [
        row_of("product", column) + row_of("kettle", value) for column, value in (("price", "=30"), ("shelf", "=9"))
    ]
    (docs / "stock.xlsx").write_bytes(make_xlsx(*sheets))


def test_rows_of_a_workbook_name_their_sheet(indexed_with, cli):
    indexed_with(write_workbook)
    place = "docs/stock.xlsx, B, row 2"
    shown = cli("query", "kettle", "shelf", "-k", "1", "--explain").stdout
    assert shown.startswith(f"{place}  (")
    assert "docs/stock.xlsx, A, row 2" in shown
    assert [result["sheet"] for result in results(cli, "kettle", "--mode", "lexical")] == ["A", "B"]
    assert [each["text"] for each in json.loads(cli("chunks", place, "--json").stdout)["chunks"]] == [
        "product: kettle\nshelf: 9"
    ]
    assert len(json.loads(cli("chunks", "docs/stock.xlsx, row 2", "--json").stdout)["chunks"]) == 2
    assert f"{place}\n```\nproduct: kettle\nshelf: 9\n```" in cli("context", "kettle").stdout
    tools = StoreTools(ServedStores({"docs": Path(".ragembed")}))
    text = tools.call("get", {"path": "docs/stock.xlsx"}).text
    passages = tools.call("get", {"path": "docs/stock.xlsx", "structured": True}).structured["results"]
    assert [passage["sheet"] for passage in passages] == ["A", "B"]
    assert text.index("docs/stock.xlsx, A, row 2\n```") < text.index(f"{place}\n```\nproduct: kettle\nshelf: 9\n```")


def places(found):
    return [(each["path"], each["start_line"]) for each in found]


LEXICAL = ("--mode", "lexical")


@pytest.mark.usefixtures("copies")
def test_near_duplicates_are_folded_in_json(cli):
    every = results(cli, "writer generation", "-k", "50", "--no-dedupe")
    folded = results(cli, "writer generation", "-k", "50")
    assert all(each["duplicates"] == [] for each in every)
    groups = [[each, *each["duplicates"]] for each in folded]
    assert sorted(each["id"] for group in groups for each in group) == sorted(each["id"] for each in every)
    alike = [group for group in groups if len(group) > 1]
    assert alike
    for group in alike:
        assert {each["path"] for each in group} <= {f"docs/guide-{name}.md" for name in "abc"}
        assert all(set(each) == {"id", "path", "start_line", "end_line", "page"} for each in group[1:])


def test_long_list_of_near_duplicates_is_shortened(docs, cli, tiny_model):
    for i in range(30):
        (docs / f"copy-{i:02}.md").write_text(GUIDE)
    cli("index", docs, "--model", tiny_model)
    shown = cli("query", "generation current", "-k", "1", *LEXICAL).stdout
    assert "    and 29 near-duplicates: docs/copy-01.md:3-3, docs/copy-02.md:3-3," in shown
    assert "docs/copy-05.md:3-3, …\n" in shown
    assert "docs/copy-06.md" not in shown
    assert len(results(cli, "generation current", *LEXICAL)[0]["duplicates"]) == 29
    assert len(results(cli, "the writer", "-k", "2", *LEXICAL)) == 2


@pytest.mark.usefixtures("copies")
def test_mmr_with_and_without_number(cli):
    query = "the writer of the store"
    plain = results(cli, query, "-k", "4")
    assert places(results(cli, query, "-k", "4", "--mmr", "1")) == places(plain)
    diverse = places(results(cli, query, "-k", "4", "--mmr", "0.5"))
    assert places(results(cli, "-k", "4", "--mmr", query)) == diverse
    assert places(results(cli, "-k", "4", "--mmr=0.5", query)) == diverse
    assert diverse[0] == places(plain)[0]
    assert places(results(cli, query, "-k", "4", "--mmr", "0")) != places(plain)


@pytest.mark.usefixtures("copies")
def test_rerank_with_a_multi_vector_model(cli, tmp_path):
    folder = make_multi_vector(tmp_path / "colbert", "expansion")
    found = results(cli, "which lock", "--rerank", folder, "-k", "20", "--no-dedupe")
    with Store.open(".ragembed") as store:
        texts = {record.id: record.chunk.embedded_text for record in store.chunks()}
    expected = ModelReranker(str(folder)).scores("which lock", [texts[each["id"]] for each in found])
    assert [each["rerank"] for each in found] == pytest.approx(sorted(expected.tolist(), reverse=True), abs=1e-5)


@pytest.mark.usefixtures("copies")
def test_rerank_with_cross_encoder(cli, cross_encoder):
    found = results(cli, "which lock", "--rerank", cross_encoder, "-k", "20", "--no-dedupe")
    scores = [each["rerank"] for each in found]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) > 2
    wings = next(each for each in found if each["path"] == "docs/wings.txt")
    assert wings["rerank"] == pytest.approx(known_score("which lock", wings["text"].replace(".", " .")), abs=1e-5)
    assert all(each["rerank"] is None for each in results(cli, "which lock"))
    two = results(cli, "which lock", "--rerank", cross_encoder, "--rerank-depth", "2", "-k", "4")
    assert [each["rerank"] is None for each in two] == [False, False, True, True]
    shown = cli("query", "which lock", "--rerank", cross_encoder, "-k", "1")
    assert f", rerank {found[0]['rerank']:.3f})\n" in shown.stdout
    assert shown.stderr == ""


@pytest.mark.usefixtures("indexed")
def test_rerank_errors_print_one_line(cli, monkeypatch, tiny_model):
    def error_of(*args):
        result = cli("query", "lock", "--rerank", *args, exit_code=2)
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        return result.stderr

    assert "expected a cross-encoder" in error_of(tiny_model)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "sentence_transformers" else find_spec(name)
    )
    assert install_command("torch") in error_of("no/model")


def test_results_name_the_member_of_an_archive_or_mail(docs, cli, tiny_model):
    with zipfile.ZipFile(docs / "a.zip", "w") as archive:
        archive.writestr("x/zebra.md", "the zebra runs\n")
        archive.writestr("zebra.md", "the zebra runs\n")
    (docs / "members.csv").write_text("text,member\nthe zebra sleeps,Bob\n")
    cli("index", docs, "--model", tiny_model, "--text-column", "text")
    found = results(cli, "zebra", *LEXICAL)
    assert {(each["path"], each.get("member")) for each in found} == {
        ("docs/a.zip", "x/zebra.md"),
        ("docs/members.csv", None),
    }
    [folded] = [each for each in found if each["duplicates"]]
    assert folded["duplicates"][0]["member"] == "zebra.md"
    text = cli("query", "zebra", *LEXICAL).stdout
    assert "docs/a.zip: x/zebra.md:1-1  " in text
    assert "and 1 near-duplicate: docs/a.zip: zebra.md:1-1" in text
    assert "docs/members.csv:2-2  " in text
    assert "--- 1: x/zebra.md, line 1, 3 tokens" in cli("chunks", docs / "a.zip").stdout


def test_a_text_without_a_file_is_headed_by_its_source(indexed, cli):
    with Store.open(".ragembed") as store:
        store.add(["An alpha sleeps."], metadata=[{"source": "https://a.example/alpha"}])
    for command in ("query", "context"):
        assert "https://a.example/alpha" in cli(command, "alpha", "--mode", "lexical").stdout


def test_places_are_pages_slides_and_rows(docs, cli, tiny_model):
    """A hit names the page of its best lines, a chunk all its pages, and a filter finds each of them."""
    words = ("alpha", "bravo", "carrot", "delta", "echo", "fox", "golf", "hotel", "india", "juliet", "kilo", "lima")
    (docs / "twelve.pdf").write_bytes(make_pdf([[(50, 700, f"Words about {word}.")] for word in words]))
    slides = pptx.Presentation()
    for word in ("mike", "november"):
        slides.slides.add_slide(slides.slide_layouts[5]).shapes.title.text = f"About {word}"
    slides.save(str(docs / "deck.pptx"))
    cli("index", docs, "--model", tiny_model)
    [best] = results(cli, "lima", *LEXICAL, "--where", "page = 12")
    assert (best["path"], best["page"]) == ("docs/twelve.pdf", 12)
    chunks = json.loads(cli("chunks", docs / "twelve.pdf", "--json").stdout)["chunks"]
    assert (chunks[0]["page"], chunks[-1]["end_page"]) == (1, 12)
    assert f"--- 1: pages 1-{chunks[0]['end_page']}, " in cli("chunks", docs / "twelve.pdf").stdout
    assert results(cli, "lima", *LEXICAL, "--where", "page = 13", exit_code=1) == []
    assert "docs/twelve.pdf, page 3  " in cli("query", "carrot", *LEXICAL).stdout
    assert "docs/deck.pptx, slide 2  " in cli("query", "november", *LEXICAL).stdout
    assert "docs/deck.pptx, slides 1-2" in cli("context", "november", *LEXICAL).stdout
    for place in (docs / "deck.pptx", "docs/deck.pptx, slide 2", "docs/deck.pptx, slides 1-2"):
        assert "--- 1: slides 1-2, " in cli("chunks", place).stdout
    assert "carrot" in cli("chunks", "docs/twelve.pdf, page 3").stdout
