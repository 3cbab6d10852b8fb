"""The examples in docstrings run and give the results that they show."""

import doctest
import re
import shutil
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import pytest

from ragembed import Embedder, Store

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"ragembed": ROOT / "ragembed", "ragembed.indexes": ROOT / "indexes", "ragembed.cli": ROOT / "cli"}
STORE = "ragembed.indexes.store"
BASE = "ragembed.indexes.search.searchable.Searchable."


EXAMPLE = re.compile(r"^ *>>> ", re.MULTILINE)
MODULES = [
    ".".join((package, *file.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
    for package, folder in PACKAGES.items()
    for file in sorted(folder.rglob("*.py"))
    if EXAMPLE.search(file.read_text("utf-8"))
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


def test_examples_are_found():
    assert {"ragembed", "ragembed.embedder", STORE, "ragembed.langchain.vectorstore"} <= set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_examples(module, notes, tmp_path, monkeypatch):
    """Each example runs in its own folder. It imports what it uses, except for the store of the methods of Store."""
    examples = [test for test in doctest.DocTestFinder().find(import_module(module)) if test.examples]
    assert examples
    for example in examples:
        folder = tmp_path / example.name
        folder.mkdir()
        monkeypatch.chdir(folder)
        example.globs.clear()
        of_store = example.name.startswith((f"{STORE}.Store.", BASE))
        if of_store or ('"notes"' in example.docstring and example.name != f"{STORE}.Store"):
            shutil.copytree(notes, "notes")
        with Store.open("notes") if of_store else nullcontext() as store:
            example.globs.update({"store": store} if of_store else {})
            outcome = doctest.DocTestRunner().run(example, clear_globs=False)
        assert outcome.failed == 0, example.name
