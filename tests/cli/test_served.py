"""Stores with embeddings from a server, from the command line."""

from __future__ import annotations

import json
import sys

import pytest

from ragembed import Store
from ragembed.indexes.storage import writer
from ragembed.version import install_command
from tests.embedding_server import EmbeddingServer, cut, status


@pytest.fixture
def served(docs, cli, embedding_server):
    """The folder ``docs`` and its store, made with the server."""
    for i in range(40):
        (docs / f"zebra{i}.txt").write_text(f"the zebra number {i} runs from the lock to wing {i % 7}\n")
    cli("index", docs, "--model", embedding_server.name, "--postprocess", "zscore,normalize")
    return docs


def hits(cli, *args):
    return [hit["path"] for hit in json.loads(cli("query", *args, "--json").stdout)["results"]]


def test_a_store_is_indexed_queried_and_updated(served, cli, embedding_server):
    with Store.open(".ragembed") as store:
        chunks = [record.chunk.embedded_text for record in store.chunks()]
        fitted = store.embedder.describe()["fitted_on"]
    assert fitted["documents"] == len(set(chunks)) == 42
    assert fitted["pseudo_queries"] > 0
    assert "docs/zebra7.txt" in hits(cli, "zebra number 7 runs to wing 0", "--mode", "dense", "-k", "5")
    assert hits(cli, "zebra number 9")[0] == "docs/zebra9.txt"
    embedding_server.requests.clear()
    (served / "new.txt").write_text("a giraffe eats leaves\n")
    assert "1 added, 0 changed, 0 removed" in cli("index").stderr
    assert "a giraffe eats leaves" in embedding_server.texts[1]
    assert len(embedding_server.texts) == 2  # the probe and the new chunk
    assert hits(cli, "giraffe leaves", "-k", "1") == ["docs/new.txt"]
    cli("index", served, "--preset", "minilm", "--model", embedding_server.name, "--postprocess", "zscore,normalize")
    assert "layers" in cli("index", served, "--layers", "1+2", exit_code=2).stderr


def test_refit_sends_only_the_probe_at_most(served, cli, embedding_server):
    embedding_server.requests.clear()
    cli("refit", "--postprocess", "abtt:2,normalize", "--query-fit", "shared")
    assert embedding_server.texts == []
    cli("refit", "--postprocess", "zscore,normalize", "--query-fit", "separate")
    assert embedding_server.texts == []  # the pseudo-queries of the first fit are kept


def test_status_names_the_server(served, cli, embedding_server):
    shown = cli("status").stdout
    assert f"model          {embedding_server.name}" in shown
    assert "prompts        none" in shown
    assert "512 tokens, estimated" in shown
    drift = cli("status", "--drift")
    assert "does not show its tokens" in drift.stderr
    assert "unseen" not in drift.stdout


def test_without_the_server_lexical_search_works(served, cli, embedding_server):
    embedding_server.stop()
    assert hits(cli, "supersonic", "--mode", "lexical") == ["docs/wings.txt"]
    failed = cli("query", "supersonic", exit_code=2)
    assert failed.stderr.count("\n") == 1
    assert "does not answer" in failed.stderr
    assert "--mode lexical" in failed.stderr


def test_explain_knows_no_words_of_a_served_model(served, cli):
    shown = cli("query", "supersonic", "-k", "1", "--explain").stdout
    assert "supersonic" in shown
    assert "does not know their tokens" in shown


def test_another_model_behind_the_name_is_refused(served, cli, embedding_server):
    embedding_server.model = "another"
    for command in (["query", "cat"], ["index"]):
        (served / "new.txt").write_text("a giraffe eats leaves\n")
        assert "not the model that this embedder was fitted with" in cli(*command, exit_code=2).stderr


def test_the_server_can_move(served, cli, embedding_server, monkeypatch):
    moved = EmbeddingServer()
    embedding_server.stop()
    monkeypatch.setenv("RAGEMBED_MODEL", moved.name)
    assert "docs/zebra7.txt" in hits(cli, "zebra number 7 runs to wing 0", "--mode", "dense", "-k", "5")
    moved.stop()


def test_finished_batches_survive_a_failing_server(docs, cli, embedding_server, monkeypatch):
    monkeypatch.setattr(writer, "BATCH", 8)
    rows = "\n".join(f"the zebra number {i} runs" for i in range(40))
    (docs / "zebras.csv").write_text("text\n" + rows + "\n")

    def fail_later(handler, texts):
        return len(embedding_server.texts) > 24 and cut(handler, texts)

    embedding_server.always = fail_later
    cli("index", docs, "--model", embedding_server.name, exit_code=2)
    committed = {text for request in embedding_server.requests for text in request if "zebra" in text}
    assert 8 <= len(committed) < 40
    embedding_server.always = None
    embedding_server.requests.clear()
    cli("index")
    assert not committed & set(embedding_server.texts)
    assert hits(cli, "zebra number 33", "-k", "1") == ["docs/zebras.csv"]


def test_a_text_that_the_server_cannot_embed_is_reported_by_file(docs, cli, embedding_server):
    (docs / "bad.txt").write_text("poison\n")
    embedding_server.always = lambda handler, texts: "poison" in texts and status(400, "NaN")(handler, texts)
    ran = cli("index", docs, "--model", embedding_server.name)
    assert "docs/bad.txt: the server could not embed 1 chunk; search by words finds the text" in ran.stderr
    assert hits(cli, "poison", "--mode", "lexical") == ["docs/bad.txt"]
    assert "docs/wings.txt" in hits(cli, "supersonic")


def test_no_store_is_made_without_the_server(docs, cli, embedding_server):
    embedding_server.stop()
    cli("index", docs, "--model", embedding_server.name, exit_code=2)
    assert not (docs.parent / ".ragembed").exists()


def test_a_dry_run_counts_tokens_and_requests_and_sends_nothing(docs, cli, embedding_server):
    dry = ["index", docs, "--dry-run", "--model", embedding_server.name]
    shown = cli(*dry).stderr
    assert "tokens to send in 1 request: for the cost, multiply the tokens by the price" in shown
    assert embedding_server.requests == []
    counts = json.loads(cli(*dry, "--json").stdout)
    assert counts["requests"] == 1
    cli("index", docs, "--model", embedding_server.name)
    sent = [text for text in embedding_server.texts if "fox" not in text]
    assert len(sent) == counts["chunks"]
    again = json.loads(cli("index", docs, "--dry-run", "--json").stdout)
    assert (again["tokens"], again["requests"]) == (0, 0)


def test_a_missing_client_is_named(docs, cli, embedding_server, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "httpx", None)
        failed = cli("index", docs, "--model", embedding_server.name, exit_code=2)
    assert "a model behind a server needs the package 'httpx'" in failed.stderr
    assert install_command("serve") in failed.stderr


def test_doctor_sends_nothing(served, cli, embedding_server):
    embedding_server.requests.clear()
    found = json.loads(cli("doctor", "--json").stdout)
    assert embedding_server.texts == []
    assert found["not_run"] == [
        {
            "check": "drift",
            "reason": "it would send texts to the server of the model: run 'ragembed status --drift' for it",
        }
    ]
    assert f"this would send it to the server of {embedding_server.name}" in " ".join(found["notes"])
