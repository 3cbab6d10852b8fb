"""The examples in the docstrings run."""

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


def test_record_manager(capsys: pytest.CaptureFixture[str]) -> None:
    run(RagRecordManager)
    assert capsys.readouterr().out == "1\n"
