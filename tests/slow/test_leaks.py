"""Opening, searching and forking many times: the same answers, and no growth of memory or open files."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from ragembed.indexes import Store
from tests.slow.helpers import INDEX, MODES, Cli, make_corpus, queries, scaled, write_corpus
from tests.slow.test_soak import usage

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("needs_minilm"),
    pytest.mark.skipif(sys.platform != "linux", reason="counts open files and memory in /proc"),
]

LARGEST_GROWTH = 12_000_000
"""Bytes that a process may gain, however often it repeats its work; caches fill, and memory has gaps."""
FORKS = 50


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    cli = Cli(tmp_path_factory.mktemp("leaks"))
    write_corpus(cli.folder, make_corpus(0, 40, 400))
    cli.must(*INDEX)
    return cli.store


def repeat(work: Callable[[int], None], count: int) -> None:
    """Do ``work`` often; what it needs may not grow after the first tenth."""
    for i in range(count // 10):
        work(i)
    files, memory = usage()
    for i in range(count):
        work(i)
    files_after, memory_after = usage()
    assert files_after <= files
    assert memory_after - memory < LARGEST_GROWTH


def test_opening_and_closing(store):
    def open_and_read(_: int) -> None:
        with Store.open(store) as opened:
            assert opened.generation

    repeat(open_and_read, scaled(5000))


def test_searching(store):
    asked = queries(1, 500)
    with Store.open(store) as opened:
        expected = {
            (text, mode): [hit.id for hit in opened.search(text, 5, mode)] for text in asked[:50] for mode in MODES
        }

        def search(i: int) -> None:
            text, mode = asked[i % len(asked)], MODES[i % len(MODES)]
            found = [hit.id for hit in opened.search(text, 5, mode)]
            assert found == expected.get((text, mode), found)

        repeat(search, scaled(20_000))


def test_forking_after_opening(store):
    asked = queries(3, FORKS)
    with Store.open(store) as opened, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking a process with threads
        expected = [[hit.id for hit in opened.search(text, 5)] for text in asked]
        files, _ = usage()
        for text, ids in zip(asked, expected, strict=True):
            child = os.fork()
            if child == 0:
                os._exit(0 if [hit.id for hit in opened.search(text, 5)] == ids else 1)
            assert os.waitpid(child, 0)[1] == 0, text
            assert [hit.id for hit in opened.search(text, 5)] == ids
        assert usage()[0] <= files


def test_searching_in_threads_while_refitting(tmp_path):
    cli = Cli(tmp_path)
    write_corpus(tmp_path, make_corpus(0, 10, 50))
    cli.must(*INDEX)
    asked, stop, counts, problems = queries(2, 100), threading.Event(), [0] * 8, []

    def search(opened: Store, number: int) -> None:
        while not stop.is_set():
            try:
                found = opened.search(asked[counts[number] % len(asked)], 5)
                if len({hit.id for hit in found}) != 5:
                    problems.append(f"{len(found)} results")
            except Exception as error:  # noqa: BLE001  any error is a failure of the test
                problems.append(repr(error))
            counts[number] += 1
            time.sleep(0.02)

    with Store.open(cli.store) as opened:
        threads = [threading.Thread(target=search, args=(opened, number)) for number in range(8)]
        for thread in threads:
            thread.start()
        try:
            cli.must("refit", "--postprocess", "center,normalize")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert problems == []
    assert min(counts) > 1
