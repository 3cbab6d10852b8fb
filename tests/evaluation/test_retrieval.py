import pytest

from ragembed.errors import ConfigError
from ragembed.evaluation import MEASURES, average_precision, ndcg, recall, reciprocal_rank, score_rankings


@pytest.mark.parametrize("measure", [ndcg, recall, reciprocal_rank, average_precision])
def test_nothing_relevant_or_nothing_found_is_0(measure):
    assert measure(["a"], {}) == 0.0
    assert measure(["a"], {"a": 0}) == 0.0
    assert measure(["a"], {"a": -2}) == 0.0
    assert measure([], {"a": 1}) == 0.0


@pytest.mark.parametrize("measure", [ndcg, recall, reciprocal_rank, average_precision])
def test_ranking_with_repeated_document_is_an_error(measure):
    with pytest.raises(ConfigError, match="a ranking of 2 documents repeats some"):
        measure(["a", "a"], {"a": 1})


@pytest.mark.parametrize("measure", [ndcg, recall, reciprocal_rank])
def test_cut_off_below_1_is_an_error(measure):
    with pytest.raises(ConfigError, match="k is 0"):
        measure(["a"], {"a": 1}, k=0)


def test_score_covers_all_judged_queries():
    relevance = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 1}, "q4": {"d": 1}}
    score = score_rankings({"q1": ["a"], "q2": ["x"], "q9": ["a"]}, relevance)
    assert score.queries == ("q1", "q2", "q3", "q4")
    assert list(score.values) == list(MEASURES) == ["ndcg@10", "recall@100", "mrr@10", "map"]
    for values in score.values.values():
        assert values.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert score.means() == dict.fromkeys(MEASURES, 25.0)


def test_no_judgement_is_an_error():
    with pytest.raises(ConfigError, match="relevance has no query"):
        score_rankings({"q": ["a"]}, {})
