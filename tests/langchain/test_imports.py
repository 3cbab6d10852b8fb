from __future__ import annotations

import subprocess
import sys

import pytest

from ragembed.version import install_command


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_new_embeddings_are_light() -> None:
    made = "from ragembed.langchain import RagEmbeddings; RagEmbeddings()"
    absent = ["torch", "transformers", "faiss", "langchain_community"]
    assert run(f"{made}; import sys; print(*[name for name in {absent} if name in sys.modules])").split() == []


WITHOUT_THE_REST = """
import sys
for absent in ("langchain", "langchain_classic", "langchain_community", "langchain_text_splitters"):
    sys.modules[absent] = None
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.indexing import index
from ragembed.langchain import RagEmbeddings, RagRetriever, RagVectorStore
store = RagVectorStore.from_texts(["foo", "bar"], DeterministicFakeEmbedding(size=6))
print(len(store.similarity_search("foo")), len(RagRetriever(vectorstore=store, k=1).invoke("foo")))
index(list(store), store.record_manager(), store, key_encoder="sha256")
print(len(store.as_retriever(search_type="hybrid").invoke("bar")))
"""


def test_only_langchain_core_is_needed() -> None:
    assert run(WITHOUT_THE_REST).split() == ["2", "1", "4"]


def test_missing_langchain_error_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['langchain_core'] = None\n"
        "from ragembed.errors import MissingExtraError\n"
        "try:\n    import ragembed.langchain\n"
        "except MissingExtraError as error:\n    print(error)\n"
    )
    assert install_command("langchain") in run(script)


def test_public_names() -> None:
    import ragembed.langchain

    names = ["RagContext", "RagEmbeddings", "RagGenerator", "RagQueryTranslator", "RagRecordManager", "RagRetriever"]
    names.append("RagVectorStore")
    assert ragembed.langchain.__all__ == names
    for name in ragembed.langchain.__all__:
        assert getattr(ragembed.langchain, name).__name__ == name
    with pytest.raises(AttributeError, match="Nothing"):
        _ = ragembed.langchain.Nothing
