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

from ragembed.langchain import RagEmbeddings, RagVectorStore


def examples(documented: type) -> list[CodeType]:
    blocks = re.findall(r"```python\n(.*?)```", inspect.getdoc(documented) or "", re.DOTALL)
    sources = [textwrap.dedent(block) for block in blocks]
    ours = [source for source in sources if "CacheBackedEmbeddings" not in source]  # of a package that is not installed
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
    assert saved_embeddings.is_dir()  # the model is there
    monkeypatch.chdir(tmp_path)


def test_embeddings() -> None:
    names = run(RagEmbeddings)
    assert len(names["vector"]) == len(names["vectors"][1]) == 384
    assert Path("my-embeddings").is_dir()


def test_vector_store(capsys: pytest.CaptureFixture[str]) -> None:
    names = run(RagVectorStore)
    assert [document.id for document in names["results"]] == ["2"]
    assert [document.id for document in names["retriever"].invoke("thud")] == ["2"]
    assert len(names["vector_store"]) == len(names["other_store"]) == 2
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "* thud [{'bar': 'baz'}]"
    assert printed[1].startswith("* [SIM=")
