"""A store that a server keeps open: it is watched, warmed up, and compared with its files."""

import logging
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ragembed import Store
from ragembed.serving import stores
from ragembed.serving.stores import ServedStore


def wait(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_store_that_appears_or_is_replaced_is_watched(folder, store, monkeypatch, caplog):
    pytest.importorskip("watchfiles")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(stores, "_WATCH_RETRY_SECONDS", 0.01)
    away, copy = folder / "away", folder / "copy"
    shutil.copytree(store, copy)
    store.rename(away)
    caplog.set_level(logging.INFO)
    served, stop = ServedStore("docs", store), threading.Event()
    thread = threading.Thread(target=served.watch, args=(stop,))
    thread.start()
    try:
        wait(lambda: "no store at" in caplog.text)
        time.sleep(0.1)
        away.rename(store)
        for number, name in enumerate(["first.md", "second.md"], 1):
            wait(lambda number=number: caplog.text.count("watching docs") == number)
            (folder / "docs" / name).write_text("a hedgehog\n")
            wait(lambda name=name: f"docs/{name}" in Store.open(store).sources())
            if number == 1:
                wait(lambda: not Store.open(store).being_written)  # A run that goes on would write into the copy.
                store.rename(away)
                copy.rename(store)
                (folder / "docs" / "third.md").write_text("a badger\n")
        assert caplog.text.count("no store at") == 1
        assert "next attempt in 0.01 s" in caplog.text
    finally:
        stop.set()
        thread.join(60)


def test_a_second_watcher_ends(folder, store, monkeypatch, caplog):
    pytest.importorskip("watchfiles")
    monkeypatch.chdir(folder)
    caplog.set_level(logging.INFO)
    stop = threading.Event()
    thread = threading.Thread(target=ServedStore("docs", store).watch, args=(stop,))
    thread.start()
    try:
        wait(lambda: "watching docs" in caplog.text)
        ServedStore("docs", store).watch(stop)
        assert "already watches the store" in caplog.text
    finally:
        stop.set()
        thread.join(60)


def test_an_unexpected_error_of_the_warm_up_is_logged(store, monkeypatch, caplog):
    monkeypatch.setattr(ServedStore, "open", lambda _self: 1 / 0)
    ServedStore("docs", store).warm_up()
    assert "the store docs is not ready" in caplog.text
    assert "division by zero" in caplog.text


def test_threads_compare_files_at_the_same_time(folder, store):
    names = ["docs/locks.md", "docs/wings.txt", "docs/forged.md"]
    served = ServedStore("docs", store)
    for name in names:
        os.utime(folder / name)
    records = [record for record in served.open().chunks() if record.source in names]
    with ThreadPoolExecutor(8) as pool:
        assert not any(any(found) for found in pool.map(lambda _: served.open().file_states(records), range(200)))
    wings = folder / "docs" / "wings.txt"
    wings.write_text(wings.read_text().upper())
    stale = {record.source for record, state in zip(records, served.open().file_states(records), strict=True) if state}
    assert stale == {"docs/wings.txt"}
