"""The examples in the docstrings of the public classes and functions run and give the results that they show."""

import doctest
import shutil
from importlib import import_module

import pytest

from ragembed import Embedder, Store

MODULES = (
    "ann.choosing",
    "ann.records",
    "api",
    "indexing.drift",
    "indexing.refit",
    "indexing.run",
    "indexing.scan",
    "search.fusion",
    "search.ranking",
    "store",
    "tuning.report",
    "types",
    "verify.run",
)
EXAMPLES = [
    test
    for module in MODULES
    for test in doctest.DocTestFinder().find(import_module(f"ragembed.indexes.{module}"))
    if test.examples
]


@pytest.fixture(scope="module")
def notes(tmp_path_factory, needs_minilm):
    """Return the folder of the store that the docstring of Store creates."""
    texts = {
        "tea": "Tea is brewed with hot water.",
        "lock": "A writer locks the store before it commits a change.",
        "bird": "Many birds fly south in autumn.",
    }
    folder = tmp_path_factory.mktemp("docstrings") / "notes"
    with Store.create(folder, Embedder().fit(texts.values())) as store:
        store.add(texts.values(), ids=list(texts), metadata=[{"year": 2023}, {"year": 2024}, {"year": 2025}])
    return folder


@pytest.mark.parametrize("example", EXAMPLES, ids=[test.name.removeprefix("ragembed.indexes.") for test in EXAMPLES])
def test_docstring_example(example, notes, in_folder):
    example.globs.clear()
    if example.name.endswith(".store.Store"):  # This example creates the store.
        assert doctest.DocTestRunner().run(example).failed == 0
        return
    shutil.copytree(notes, in_folder / "notes")
    with Store.open("notes") as store:
        example.globs["store"] = store
        assert doctest.DocTestRunner().run(example, clear_globs=False).failed == 0
