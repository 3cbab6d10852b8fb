"""The language of a store from the command line."""

import json

import pytest


@pytest.fixture
def german(in_folder):
    folder = in_folder / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("Die schönen Häuser stehen dort.\n", encoding="utf-8")
    (folder / "b.txt").write_text("Nothing else.\n", encoding="utf-8")
    return folder


def sources(cli, query):
    found = json.loads(cli("query", query, "--mode", "lexical", "--json").stdout)
    return [result["path"] for result in found["results"]]


def test_store_keeps_its_language(german, cli, tiny_model):
    cli("index", german, "--model", tiny_model, "--language", "german")
    assert sources(cli, "Haus") == ["docs/a.txt"]
    assert json.loads(cli("status", "--json").stdout)["language"] == "german"
    assert "language       german" in cli("status").stdout.split("\n")
    cli("index", "--language", "german")
    refused = cli("index", "--language", "none", exit_code=2)
    assert "was made with the language german, not none: leave the setting out" in refused.stderr
    (german / "c.txt").write_text("Viele Häusern.\n", encoding="utf-8")
    cli("index")
    assert sorted(sources(cli, "Haus")) == ["docs/a.txt", "docs/c.txt"]


def test_unknown_language_is_an_error(german, cli, tiny_model):
    result = cli("index", german, "--model", tiny_model, "--language", "klingon", exit_code=2)
    assert "unknown language 'klingon': expected english, arabic," in result.stderr
    assert not (german.parent / ".ragembed").exists()
