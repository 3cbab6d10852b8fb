"""A command opens the store once, and a query reads one snapshot."""

import sqlite3
import threading

import pytest

from ragembed.indexes import Store
from ragembed.indexes.storage.reader import StoreReader


@pytest.fixture
def counts(monkeypatch):
    """Count connections to the database of the store, and snapshots."""
    found = {"connections": 0, "snapshots": 0}
    connect, snapshot = sqlite3.connect, StoreReader.views

    def counting_connect(database, *args, **settings):
        found["connections"] += "store.db" in str(database)
        return connect(database, *args, **settings)

    def counting_snapshot(self, name=None):
        found["snapshots"] += 1
        return snapshot(self, name)

    monkeypatch.setattr(sqlite3, "connect", counting_connect)
    monkeypatch.setattr(StoreReader, "views", counting_snapshot)
    return found


@pytest.mark.parametrize("options", [(), ("--explain",), ("--where", "ext = 'md'"), ("--alpha", "0.3", "--mmr")])
def test_query_reads_one_snapshot_from_one_connection(cli, indexed, counts, options):
    cli("query", "the writer's lock", *options, "--json")
    assert counts == {"connections": 1, "snapshots": 1}


def test_index_of_unchanged_store_opens_two_connections(cli, indexed, tiny_model, counts):
    cli("index", indexed, "--json")
    assert counts["connections"] == 2
    cli("index", "--model", tiny_model, "--index", "flat", "--dry-run", "--json")
    assert counts["connections"] == 3


def test_reads_inside_read_see_one_generation(tmp_path, encoder):
    with Store.create(tmp_path / "store", encoder) as opened:
        opened.add(["one"])

        def add():
            with Store.open(opened.path, encoder) as other:
                other.add(["two"])

        def answer():
            before = len(opened)
            writer = threading.Thread(target=add)
            writer.start()
            writer.join()
            return before, len(opened), opened.generation

        before, after, generation = opened.read(answer)
        assert before == after == 1
        assert len(opened) == 2
        assert opened.generation > generation
