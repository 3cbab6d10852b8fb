"""Readers of judgements and their errors."""

import json
import os

import pytest

from ragembed.errors import ConfigError
from ragembed.evaluation import read_judged_queries, read_qrels, read_run
from ragembed.evaluation.judgements import require_known


@pytest.fixture
def write(tmp_path):
    def write(content, name="judged.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_trec_qrels(write):
    judged = read_qrels(write("q2 0 d1 1\nq1\t0\td1   2\nq1 Q0 d3 -1\n\n"))
    assert judged.relevance == {"q2": {"d1": 1}, "q1": {"d1": 2, "d3": -1}}
    assert (judged.name, judged.queries, judged.unanswered) == ("judged", {}, 0)


def test_beir_table_is_detected_by_its_header(write):
    judged = read_qrels(write("query-id\tcorpus-id\tscore\nq1\td 1\t2\n"))
    assert judged.relevance == {"q1": {"d 1": 2}}


def test_windows_line_endings_and_byte_order_mark(write):
    assert read_qrels(write(b"\xef\xbb\xbfq1 0 d1 1\r\nq1 0 d2 0\r\n")).relevance == {"q1": {"d1": 1, "d2": 0}}
    lines = b'\xef\xbb\xbf{"question": "a?", "relevant": ["d1"]}\r\n'
    assert read_qrels(write(lines)).queries == {"1": "a?"}


def test_queries_without_relevant_document_are_skipped_and_counted(write):
    judged = read_qrels(write("q1 0 d1 0\nq2 0 d1 1\nq3 0 d1 -2\n"))
    assert (list(judged.relevance), judged.unanswered) == (["q2"], 2)


def test_judged_queries(write):
    lines = [
        {"question": "first?", "relevant": ["docs/a.md", "b"]},
        {"_id": "two", "query": "second?", "relevant": {"a": 2, "b": 0}},
        {"text": "third?", "relevant": []},
    ]
    judged = read_judged_queries(write("\n".join(map(json.dumps, lines)), "mine.jsonl"))
    assert judged.queries == {"1": "first?", "two": "second?"}
    assert judged.relevance == {"1": {"docs/a.md": 1, "b": 1}, "two": {"a": 2, "b": 0}}
    assert (judged.name, judged.unanswered) == ("mine", 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty: expected at least one line"),
        ("\n \n", "is empty: expected at least one line"),
        ("q1 0 d1\n", "line 1: 3 fields: expected 4 of TREC qrels"),
        ("q1 0 d1 1\nq1 0 d2 1 x\n", "line 2: 5 fields"),
        ("q1 0 d1 1\nq1 0 d2 high\n", "line 2: the score is 'high': expected an integer"),
        ("q1 0 d1 0.5\n", "line 1: the score is '0.5'"),
        ("q1 0 d1 1_0\n", "line 1: the score is '1_0'"),
        ("q1 0 d1 1\nq1 0 d1 0\n", "line 2: document 'd1' is judged again for query 'q1'"),
        ("q1 0 d1 0\nq2 0 d1 -1\n", "has no relevant document for any of its 2 queries"),
        (b"q1 0 d1 1\nq1 0 \xff 1\n", "line 2: not UTF-8"),
        ("query\tdocument\tscore\nq1\td1\t1\n", "line 1: the header is .*: expected query-id corpus-id score"),
        ('{"question": "a?", "relevant": ["a"]}\n[1]\n', "line 2: got list: expected a JSON object"),
        ('{"question": "a?"', "line 1: not valid JSON"),
        ('{"relevant": ["a"]}', "line 1: has none of 'query', 'question', 'text': expected one of them"),
        ('{"question": "a", "text": "b", "relevant": ["a"]}', "line 1: has 'question' and 'text' of"),
        ('{"question": " ", "relevant": ["a"]}', "line 1: 'question' is ' ': expected a string that is not empty"),
        ('{"question": "a?"}', "line 1: 'relevant' is None: expected a list of ids"),
        ('{"question": "a?", "relevant": [3]}', "line 1: an id in 'relevant' is 3: expected a string"),
        ('{"question": "a?", "relevant": ["a", "a"]}', "line 1: 'relevant' repeats 'a'"),
        ('{"question": "a?", "relevant": {"a": true}}', "line 1: the gain of 'a' is True: expected an integer"),
        ('{"question": "a?", "relevant": {"a": 1.5}}', "line 1: the gain of 'a' is 1.5"),
        ('{"_id": 7, "question": "a?", "relevant": ["a"]}', "line 1: '_id' is 7"),
        ('{"_id": "2", "question": "a?", "relevant": ["a"]}\n{"question": "b?", "relevant": ["a"]}', "the _id '2'"),
        ('{"question": "a?", "relevant": []}', "has no relevant document for any of its 1 queries"),
    ],
)
def test_judgement_error_names_file_and_line(write, content, message):
    path = write(content)
    with pytest.raises(ConfigError, match=message) as raised:
        read_qrels(path)
    assert str(path) in str(raised.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_pipe_is_an_error_before_it_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for read in (read_qrels, read_run):
        with pytest.raises(ConfigError, match="pipe is a pipe or a device: expected a file"):
            read(tmp_path / "pipe")


def test_unknown_documents_are_counted_and_listed(tmp_path):
    named = ["a", "x", *(f"y{i}" for i in range(7))]
    require_known(tmp_path, named, set(named), "the corpus")
    with pytest.raises(ConfigError, match=r"8 of 9 document ids are not in the corpus: 'x', 'y0', .* 'y3' and 3 more"):
        require_known(tmp_path, named, {"a"}, "the corpus")
