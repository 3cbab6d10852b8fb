"""Runs are read and scored as by trec_eval."""

import json

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from ragembed.errors import ConfigError
from ragembed.evaluation import by_score, parse_measures, read_qrels, read_run, score_rankings, write_run

DOCUMENTS = st.sampled_from([*(f"d{i}" for i in range(12)), "é", "Ω1", "\U0001f600"])
# Few values, so many tie; some differ only in float64, which trec_eval does not use.
SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 1.00000001, 0.99999999, -3.5, 1e-50, 7e37]), st.floats(-1e3, 1e3, width=32)
)
RUNS = st.dictionaries(st.sampled_from(["q1", "q2", "q3"]), st.dictionaries(DOCUMENTS, SCORES, min_size=1), min_size=1)
QRELS = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3", "q4"]),
    st.dictionaries(DOCUMENTS, st.integers(-1, 4), min_size=1).filter(lambda gains: max(gains.values()) > 0),
    min_size=1,
)
MEASURES = {
    "ndcg@3": "ndcg_cut_3",
    "ndcg@10": "ndcg_cut_10",
    "recall@5": "recall_5",
    "p@5": "P_5",
    "success@2": "success_2",
    "map@4": "map_cut_4",
    "map": "map",
    "mrr": "recip_rank",
}


def trec_lines(run):
    return "".join(
        f"{query} Q0 {document} 1 {score!r} mine\n" for query, found in run.items() for document, score in found.items()
    )


@pytest.fixture
def write(tmp_path):
    def write(content, name="mine.run"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@given(run=RUNS, qrels=QRELS)
def test_scores_of_files_equal_trec_eval(tmp_path_factory, run, qrels):
    folder = tmp_path_factory.mktemp("run")
    (folder / "run").write_text(trec_lines(run), encoding="utf-8")
    judged = "".join(f"{q} 0 {d} {gain}\n" for q, gains in qrels.items() for d, gain in gains.items())
    (folder / "qrels").write_text(judged, encoding="utf-8")
    measures = {"ndcg_cut.3,10", "recall.5", "P.5", "success.2", "map_cut.4", "map", "recip_rank"}
    expected = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    score = score_rankings(
        read_run(folder / "run"), read_qrels(folder / "qrels").relevance, parse_measures(",".join(MEASURES))
    )
    for name, theirs in MEASURES.items():
        for query, value in zip(score.queries, score.values[name], strict=True):
            # A query without a ranking counts as 0, as with the option -c of trec_eval.
            assert value == pytest.approx(expected[query][theirs] if query in run else 0.0, abs=1e-6), name


def test_scores_are_compared_as_float32():
    assert by_score({"a": 1.00000001, "b": 1.0}) == ["b", "a"]
    assert by_score({"a": 1.001, "b": 1.0}) == ["a", "b"]
    assert by_score({"a": 1e300, "b": 3.0, "c": -1e300}) == ["a", "b", "c"]


def test_runs_as_json_lines(write):
    lines = [{"_id": "q1", "ranking": ["b", "a"]}, {"_id": "q2", "ranking": {"a": 1, "b": 2.5, "c": 1.0}}]
    assert read_run(write("\n".join(map(json.dumps, lines)))) == {"q1": ["b", "a"], "q2": ["b", "c", "a"]}


@pytest.mark.parametrize("name", ["out.run", "out.jsonl"])
@given(
    rankings=st.dictionaries(
        st.sampled_from(["q1", "q2"]),
        st.lists(st.tuples(DOCUMENTS, SCORES), min_size=1, unique_by=lambda each: each[0]),
        min_size=1,
    )
)
def test_written_order_is_read_back(tmp_path_factory, name, rankings):
    """The order with ties is that of trec_eval; its recip_rank shows the rank of the only relevant document."""
    ranked = {query: sorted(found, key=lambda each: -each[1]) for query, found in rankings.items()}
    path = tmp_path_factory.mktemp("run") / name
    write_run(path, ranked, "my run")
    order = {query: [document for document, _ in found] for query, found in ranked.items()}
    assert read_run(path) == order
    if path.suffix == ".run":
        fields = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
        assert {field[5] for field in fields} == {"my-run"}
        run = {query: {f[2]: float(f[4]) for f in fields if f[0] == query} for query in ranked}
        for query, documents in order.items():
            evaluator = pytrec_eval.RelevanceEvaluator({query: {documents[-1]: 1}}, {"recip_rank"})
            found = evaluator.evaluate({query: run[query]})[query]["recip_rank"]
            assert found == pytest.approx(1 / len(documents))


def test_trec_run_cannot_hold_ids_with_spaces(tmp_path):
    ranking = {"q1": [("docs/my file.md", np.float32(0.5)), ("b", 0.25)]}
    with pytest.raises(ConfigError, match=r"such as 'docs/my file\.md': give the file a name that ends in \.jsonl"):
        write_run(tmp_path / "out.run", ranking, "x")
    assert not (tmp_path / "out.run").exists()
    write_run(tmp_path / "out.jsonl", ranking, "x")
    assert read_run(tmp_path / "out.jsonl") == {"q1": ["docs/my file.md", "b"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty: expected at least one line"),
        ("q Q0 a 1 0.5\n", "line 1: 5 fields: expected 6 of a TREC run"),
        ("q Q0 a 1 0.5 x\nq Q0 b 1 0.5 x y\n", "line 2: 7 fields"),
        ("q Q0 a 1 best x\n", "line 1: the score is 'best': expected a finite number"),
        ("q Q0 a 1 nan x\n", "line 1: the score is 'nan'"),
        ("q Q0 a 1 inf x\n", "line 1: the score is 'inf'"),
        ("q Q0 a 1 0.5 x\np Q0 a 1 0.5 x\nq Q0 a 2 0.4 x\n", "line 3: document 'a' is repeated for query 'q'"),
        (b"q Q0 \xe9 1 0.5 x\n", "line 1: not UTF-8"),
        ('{"_id": "q"}', "line 1: 'ranking' is invalid: expected a list of ids"),
        ('{"_id": "q", "ranking": [1]}', "line 1: 'ranking' is invalid: expected a list of ids"),
        ('{"ranking": ["a"]}', "line 1: '_id' is None"),
        ('{"_id": "q", "ranking": ["a", "b", "a"]}', "line 1: the ranking of query 'q' repeats 'a'"),
        ('{"_id": "q", "ranking": {"a": true}}', "line 1: the score of 'a' is True"),
        ('{"_id": "q", "ranking": {"a": NaN}}', "line 1: the score of 'a' is nan"),
        ('{"_id": "q", "ranking": []}\n{"_id": "q", "ranking": []}', "line 2: a second line has the _id 'q'"),
    ],
)
def test_run_error_names_file_and_line(write, content, message):
    path = write(content)
    with pytest.raises(ConfigError, match=message) as raised:
        read_run(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("text", ["ndcg", "recall", "p", "ndcg@0", "map@x", "bpref", "", "map,", "ndcg@-1", "ndcg@1.5"])
def test_unknown_measures_are_errors(text):
    with pytest.raises(ConfigError, match=r"unknown measure '.*': expected ndcg@k, recall@k, p@k, success@k, mrr@k"):
        parse_measures(text)


def test_measures_by_name():
    measures = parse_measures("P@2, success@1,mrr@1,MRR")
    ranking, relevance = ["x", "a", "b"], {"a": 1, "b": 2}
    assert {name: measure(ranking, relevance) for name, measure in measures.items()} == {
        "p@2": 0.5,
        "success@1": 0.0,
        "mrr@1": 0.0,
        "mrr": 0.5,
    }
