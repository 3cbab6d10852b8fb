"""How far a call walks: the files and functions of ours that it crosses, counted in a process of its own."""

import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from itertools import count as count_up
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = tuple(str(ROOT / folder) + os.sep for folder in ("ragembed", "indexes", "cli"))
TEXT = """# Tea

Tea is brewed with hot water.
The water must not boil for green tea.

Birds fly south in autumn.
"""
QUESTION = "How is tea brewed?"


class InAnotherThread:
    """Threads whose jobs are done at once: what they call is never counted."""

    def submit(self, job):
        done = Future()
        thread = threading.Thread(target=lambda: done.set_result(job()))
        thread.start()
        thread.join()
        return done


def crossed(action):
    """Return the numbers of files and functions of ours that ``action`` calls in this thread."""
    codes = set()
    sys.setprofile(lambda frame, event, _: codes.add(frame.f_code) if event == "call" else None)
    try:
        action()
    finally:
        sys.setprofile(None)
    ours = [code for code in codes if code.co_filename.startswith(OURS) and not code.co_name.startswith("<")]
    return len({code.co_filename for code in ours}), len(ours)


EDITS = count_up()


def index():
    from ragembed.cli import main

    Path("tea.md").write_text(f"{TEXT}\n{next(EDITS)} cups.\n", encoding="utf-8")
    main(["index", "tea.md", "--quiet"], standalone_mode=False)


def query():
    from ragembed.cli import main

    main(["query", QUESTION], standalone_mode=False)


def search():
    from ragembed import Store

    store = Store.open(".ragembed")
    return lambda: store.search(QUESTION)


def langchain():
    from langchain_core.documents import Document

    from ragembed.langchain import RagEmbeddings, RagVectorStore

    texts = TEXT.split("\n\n")
    store = RagVectorStore.from_texts(texts, RagEmbeddings().fit(texts))
    added = count_up()

    def add_and_search():
        store.add_documents([Document(f"Tea number {next(added)}.")])
        store.similarity_search(QUESTION)

    return add_and_search


CASES = {  # name: action or function that returns it, most files, most functions
    "index": (lambda: index, 81, 626),
    "query": (lambda: query, 65, 455),
    "search": (search, 22, 116),
    "langchain": (langchain, 64, 343),
}


@pytest.fixture(scope="module")
def indexed(tmp_path_factory, needs_minilm):
    """Return a folder with the store of a small file."""
    folder = tmp_path_factory.mktemp("ways")
    (folder / "tea.md").write_text(TEXT, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "ragembed", "index", "tea.md"], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_calls_cross_few_files_and_functions(name, indexed):
    """The first two calls import modules and fill caches; the third is counted."""
    script = f"from tests.test_ways import count; count({name!r})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    made = subprocess.run(
        [sys.executable, "-c", script], cwd=indexed, env=environment, capture_output=True, text=True, check=True
    )
    files, functions = map(int, made.stdout.splitlines()[-1].split())
    _, most_files, most_functions = CASES[name]
    assert files <= most_files
    assert functions <= most_functions


def count(name):
    from ragembed.indexes.search import hybrid

    hybrid.PROCESSORS.threads = InAnotherThread()
    action = CASES[name][0]()
    action()
    action()
    print(*crossed(action))  # noqa: T201
