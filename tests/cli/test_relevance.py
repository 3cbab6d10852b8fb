"""Relevance and the language of the texts from the command line."""

import json
import shlex
from html import escape
from pathlib import Path

import pytest

from ragembed.cli import main
from ragembed.indexes import Store, diagnose
from ragembed.indexes.search.relevance import relevance_word
from ragembed.languages import everyday_sentences
from ragembed.models.multilingual import MULTILINGUAL_MODEL
from ragembed.reports.store_report import report

pytestmark = pytest.mark.usefixtures("all_queries")

TEXTS = ["the writer locks the store", "a reader of the segment", "shock wave on a wing", "the zebra sleeps"]


def write_more(docs):
    for file in docs.iterdir():
        file.unlink()
    for number in range(24):
        (docs / f"{number:02}.txt").write_text(f"{TEXTS[number % 4]} number {number} of the folder {number * 7}\n")


@pytest.fixture
def indexed(indexed_with):
    return indexed_with(write_more)


def results(cli, *args, **settings):
    return json.loads(cli("query", *args, "--json", **settings).stdout)["results"]


@pytest.mark.usefixtures("indexed")
def test_results_have_a_relevance_that_can_be_required(cli):
    found = results(cli, "zebra sleeps")
    values = [result["relevance"] for result in found]
    assert all(0 <= value <= 1 for value in values)
    least = sorted(values)[len(values) // 2]
    # Results further down take the places of those that are left out.
    relevant = [each["id"] for each in results(cli, "zebra sleeps", "-k", "24") if each["relevance"] >= least]
    kept = results(cli, "zebra sleeps", "--min-relevance", least)
    assert [each["id"] for each in kept] == relevant[:10]
    shown = cli("query", "zebra sleeps", "--explain", "-v").stdout
    assert f"{relevance_word(values[0])} match)" in shown
    assert f"    relevance  {values[0]:.2f}: " in shown
    assert "highest possible" in shown
    assert "relevance      fitted on 24 pseudo-queries of 24 chunks" in cli("status").stdout


def test_explain_says_why_the_relevance_is_unknown(indexed_with, cli):
    indexed_with(lambda docs: None)
    unknown = "the relevance of results is unknown: it is fitted for 20 chunks or more, and the store has 3"
    found = cli("query", "lock", "--explain")
    assert found.stderr == f"note: {unknown}\n"
    assert " match)" not in found.stdout
    assert json.loads(cli("query", "lock", "--explain", "--json").stdout)["notes"] == [unknown]
    assert cli("query", "lock").stderr == ""


@pytest.mark.usefixtures("indexed")
def test_weak_matches_are_noted(cli):
    weak = cli("query", "unheard aardvark", "-k", "2", "--mode", "lexical", exit_code=1)
    assert "no results" in weak.stderr
    weak = cli("query", "the unheard aardvark beside a lock", "-k", "2", "--mode", "lexical")
    assert "note: weak matches: the documents may not answer this query" in weak.stderr
    packed = cli("context", "the unheard aardvark beside a lock", "--mode", "lexical")
    assert "note: weak matches" in packed.stderr
    assert "docs/00.txt:1-1 (weak match)\n" in packed.stdout
    packed = cli("context", "the unheard aardvark beside a lock", "--mode", "lexical", "--format", "xml")
    assert '<document source="docs/00.txt:1-1" section="weak match">' in packed.stdout
    none = cli("query", "the unheard aardvark", "--min-relevance", "1", exit_code=1)
    assert "no results with relevance 1 or more" in none.stderr
    assert "weak matches" not in none.stderr
    assert "is not in the range 0.0<=x<=1.0" in cli("query", "lock", "--min-relevance", "2", exit_code=2).stderr


def test_a_query_before_the_relevance_is_fitted_says_so(indexed, cli):
    note = "note: the store is being finished: how relevant the results are is not known yet\n"
    assert note not in cli("query", "zebra", "--no-dedupe").stderr
    with Store.open(indexed.parent / ".ragembed") as store, store.writer() as writer:
        writer.set_meta({"detected_language": None, "relevance": None})
        assert note in cli("query", "zebra", "--no-dedupe").stderr
        writer.set_meta({"detected_language": {"chunks": 24, "language": None, "is_read": True}})
        assert note not in cli("query", "zebra", "--no-dedupe").stderr  # the fit does not tell the groups apart


def test_a_store_without_it_says_how_to_get_it(indexed, cli):
    with Store.open(indexed.parent / ".ragembed") as store, store.writer() as writer:
        writer.set_meta({"relevance": None})
    assert {result["relevance"] for result in results(cli, "zebra")} == {None}
    assert ", relevance" not in cli("query", "zebra").stdout
    assert "not fitted yet: run ragembed refit" in cli("status").stdout
    for command in (("query",), ("query", "--explain"), ("context",)):
        shown, limited = (cli(*command, "zebra", *option) for option in ((), ("--min-relevance", "0.5")))
        assert limited.stdout == shown.stdout
        assert limited.stderr.count("note: the relevance of results is unknown, so the threshold 0.5 was not") == 1
        assert "'ragembed refit' makes one" in limited.stderr
    cli("refit", "--postprocess", "normalize")
    assert None not in {result["relevance"] for result in results(cli, "zebra")}


def test_index_doctor_and_report_say_the_same_about_languages(in_folder, cli, tiny_model):
    folder = in_folder / "my docs"
    folder.mkdir()
    for number, (name, language) in enumerate([("a", "english"), ("b", "russian"), ("c", "russian"), ("d", "english")]):
        sentences = everyday_sentences()[language]
        (folder / f"{name}.txt").write_text("\n".join(sentences[number:] + sentences[:number]), encoding="utf-8")
    note = cli("index", folder, "--model", tiny_model, "--exclude", "c.txt", "--exclude", "d.txt").stderr
    [finding] = [each for each in diagnose().findings if each.id == "language"]
    assert f"note: {finding.title}; " in note
    assert f"; for a store that suits the texts, run: {finding.command}\n" in note
    cli("index", folder, "--exclude", "d.txt")
    both = [each for each in diagnose().findings if each.id in ("language", "word-endings")]
    assert {each.command for each in both} == {both[0].command}
    with Store.open(".ragembed") as store:
        page = report(store)[0].decode()
    for each in both:
        assert escape(each.command, quote=False) in page
        assert each.title[1:] in page
    arguments = shlex.split(both[0].command.partition("ragembed ")[2])[1:]
    made = main.get_command(None, "index").make_context("index", arguments).params
    assert (made["paths"], made["model"], made["language"]) == (
        (Path("my docs"),),
        MULTILINGUAL_MODEL,
        "russian",
    )


def test_a_language_that_the_model_does_not_know_is_named_once(in_folder, cli, tiny_model):
    folder = in_folder / "docs"
    folder.mkdir()
    for number, text in enumerate(["写入者持有存储的锁。", "读者不等待写入者。", "机翼上的激波和边界层。"]):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    first = cli("index", folder, "--model", tiny_model).stderr
    assert "note: the model was not made for Chinese; for a store that suits the texts, run: " in first
    assert "ragembed index docs --store .ragembed-new --model multilingual-e5-small-q4" in first
    (folder / "new.txt").write_text("还有一个文件。", encoding="utf-8")
    assert "Chinese" not in cli("index").stderr
    status = cli("status").stdout
    assert "language       english; texts in Chinese, which the model was not made for" in status
    assert results(cli, "写入者的锁")[0]["path"] == "docs/0.txt"
