"""Ranking options: folding near-duplicates, results per source, reranking; all off by default."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from langchain_core.documents import Document
from pydantic import ValidationError

from ragembed.indexes import RankingOptions
from ragembed.langchain import RagRetriever, RagVectorStore

from .fakes import FirstAngle, ids

DEDUPE = RankingOptions(dedupe=True)


class Last:
    """A reranker that puts the longest text first."""

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        return [float(len(text)) for text in texts]


@pytest.fixture(scope="module")
def store() -> Iterator[RagVectorStore]:
    """Two documents each at 0, 10, … 50 degrees, from alternating sources; the second is a copy of the first."""
    with RagVectorStore(FirstAngle()) as store:
        store.add_documents(
            [
                Document(
                    f"{10 * (n // 2)} degrees" + "!" * (n % 2), id=f"d{n}", metadata={"n": n, "source": "xy"[n % 2]}
                )
                for n in range(12)
            ]
        )
        yield store


async def test_ranking_options(store: RagVectorStore) -> None:
    retriever = RagRetriever(vectorstore=store, k=4, search_type="dense")
    assert ids(retriever.invoke("0 degrees"))[:2] == ["d0", "d1"]
    folded = RagRetriever(vectorstore=store, k=4, search_type="dense", ranking=DEDUPE)
    assert len(folded.invoke("0 degrees")) == 4
    assert all(int(str(name)[1:]) % 2 == 0 for name in ids(folded.invoke("0 degrees")))
    assert ids(await folded.ainvoke("0 degrees")) == ids(retriever.invoke("0 degrees", ranking=DEDUPE))
    few = retriever.invoke("0 degrees", ranking=RankingOptions(per_file=1))
    assert sorted(document.metadata["source"] for document in few) == ["x", "y"]
    odd = retriever.invoke("0 degrees", ranking=DEDUPE, filter={"source": "y"}, k=9)
    assert sorted(document.metadata["n"] for document in odd) == [1, 3, 5, 7, 9, 11]


def test_every_search_accepts_ranking(store: RagVectorStore) -> None:
    ranking = RankingOptions(dedupe=True, reranker=Last(), rerank_depth=3)
    for name in ("hybrid", "similarity", "lexical"):
        search, with_score = (getattr(store, f"{name}_search{end}") for end in ("", "_with_score"))
        found = search("0 degrees", 3, ranking=ranking)
        assert ids(found)[-1] == "d0"  # "0 degrees" is the shortest
        assert [document for document, _ in with_score("0 degrees", 3, ranking=ranking)] == found
        scores = dict(zip(ids(found), [score for _, score in with_score("0 degrees", 3, ranking=ranking)], strict=True))
        assert max(scores, key=lambda name: scores[name]) == "d0"  # scores are those of the search
    assert ids(store.search("0 degrees", "hybrid", k=2, ranking=DEDUPE)) == ["d0", "d2"]
    near = store.similarity_search_with_relevance_scores("0 degrees", k=2, score_threshold=0.9, ranking=DEDUPE)
    assert ids([document for document, _ in near]) == ["d0", "d2"]


def test_mmr_and_ranking_are_an_error(store: RagVectorStore) -> None:
    with pytest.raises(ValidationError, match="search_type 'mmr' and ranking cannot be combined"):
        RagRetriever(vectorstore=store, search_type="mmr", ranking=DEDUPE)
    with pytest.raises(ValidationError, match="search_type 'mmr' and ranking cannot be combined"):
        RagRetriever(vectorstore=store, ranking=DEDUPE).invoke("0", search_type="mmr")
    with pytest.raises(ValidationError, match="ranking"):
        RagRetriever(vectorstore=store, ranking={"dedupe": True})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'ranking'"):
        store.max_marginal_relevance_search("0", ranking=DEDUPE)
