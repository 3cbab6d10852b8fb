"""The examples in the docstrings run, and the docstrings are complete."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from ragembed.langchain import RagEmbeddings, RagRecordManager, RagRetriever, RagVectorStore

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use-langchain.md"


CODE_BLOCK = re.compile(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", re.MULTILINE)


def examples(documented: type) -> list[CodeType]:
    blocks = CODE_BLOCK.findall((inspect.getdoc(documented) or "") + "\n")
    sources = [textwrap.dedent(block) for block in blocks]
    ours = [source for source in sources if "CacheBackedEmbeddings" not in source]  # that package is not installed
    assert ours
    return [compile(source, documented.__name__, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT) for source in ours]


def run(documented: type) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for example in examples(documented):
        pending = eval(example, names)
        if pending is not None:
            asyncio.run(pending)
    return names


@pytest.fixture(autouse=True)
def _elsewhere(saved_embeddings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert saved_embeddings.is_dir()  # the model exists
    monkeypatch.chdir(tmp_path)


def test_embeddings() -> None:
    names = run(RagEmbeddings)
    assert len(names["vector"]) == len(names["vectors"][1]) == 384
    assert Path("my-embeddings").is_dir()


def test_vector_store(capsys: pytest.CaptureFixture[str]) -> None:
    names = run(RagVectorStore)
    assert [document.id for document in names["results"]] == ["2"]
    assert [document.id for document in names["retriever"].invoke("thud")] == ["2"]
    assert len(names["other_store"]) == 2
    assert len(names["vector_store"]) == 4  # index() added two of them again with its own ids
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == ["2: thud", "* thud [{'bar': 'baz'}]"]
    assert printed[2].startswith("* [SIM=")


def test_retriever() -> None:
    names = run(RagRetriever)
    assert [document.page_content for document in names["documents"]] == ["bar baz"]
    assert "score" in names["documents"][0].metadata
    assert names["answer"] == "an answer"


SECTIONS = {
    RagEmbeddings: "Parameters, Setup, Instantiate, Embed single text, Embed multiple texts, Async",
    RagVectorStore: (
        "Parameters, Setup, Instantiate, Add Documents, Inspect Documents, Delete Documents, Search, "
        "Search with filter, Search with score, Async, Use as Retriever"
    ),
    RagRetriever: "Parameters, Setup, Instantiate, Usage, Use within a chain",
}


@pytest.mark.parametrize("documented", SECTIONS, ids=lambda documented: documented.__name__)
def test_docstrings_have_the_usual_sections(documented: type) -> None:
    found = re.findall(r"^([A-Z][\w ]+)(?::|\n-+)$", inspect.getdoc(documented) or "", re.MULTILINE)
    wanted = SECTIONS[documented].split(", ")
    assert [name.lower() for name in found if name.lower() in map(str.lower, wanted)] == [*map(str.lower, wanted)]


def test_record_manager(capsys: pytest.CaptureFixture[str]) -> None:
    run(RagRecordManager)
    assert capsys.readouterr().out == "1\n"


OUTLINE = [
    "Overview",
    "Setup",
    "Instantiation",
    "Manage the vector store",
    "Add items",
    "Update items",
    "Delete items",
    "Query",
    "Directly",
    "By turning into a retriever",
    "Usage for RAG",
    "Filters",
    "API reference",
]


def test_page_has_the_usual_outline() -> None:
    headings = re.findall(r"^##+ (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [heading for heading in headings if heading in OUTLINE] == OUTLINE
