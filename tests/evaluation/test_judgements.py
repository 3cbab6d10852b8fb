"""Readers of judgements and of test collections, and their errors."""

import json
import os

import pytest

from ragembed.errors import ConfigError
from ragembed.evaluation import read_beir, read_jsonl_collection, read_judged_queries, read_qrels, read_run
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


@pytest.fixture
def beir(tmp_path):
    """A function that writes a BEIR folder, with files that a test can replace."""
    files = {
        "corpus.jsonl": [
            {"_id": "d1", "title": "A title", "text": "a text"},
            {"_id": "d2", "title": "", "text": "no title"},
            {"_id": "d3", "text": "no title at all"},
        ],
        "queries.jsonl": [{"_id": "q1", "text": "first?"}, {"_id": "q2", "text": "second?"}],
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq2\td2\t1\nq1\td1\t2\nq1\td3\t0\n",
    }

    def write(**changes):
        folder = tmp_path / "beir"
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        for name, content in {**files, **{key.replace("__", "."): value for key, value in changes.items()}}.items():
            lines = content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content)
            (folder / ("qrels/test.tsv" if name == "qrels" else name)).write_text(lines, encoding="utf-8", newline="")
        return folder

    return write


def test_read_beir(beir):
    collection = read_beir(beir())
    assert collection.name == "beir"
    assert collection.documents == {"d1": "A title\n\na text", "d2": "no title", "d3": "no title at all"}
    assert list(collection.queries.items()) == [("q2", "second?"), ("q1", "first?")]
    assert collection.relevance == {"q2": {"d2": 1}, "q1": {"d1": 2, "d3": 0}}


def test_a_folder_without_documents_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"has no corpus\.jsonl: expected a BEIR folder"):
        read_beir(tmp_path)


def test_read_beir_with_limit(beir):
    collection = read_beir(beir(), limit=1)
    assert list(collection.documents) == ["d1"]
    assert collection.queries == {"q1": "first?"}
    assert collection.relevance == {"q1": {"d1": 2}}


def test_titles_are_part_of_documents(beir):
    rows = [
        {"_id": "d1", "title": "A title", "text": "A title\n\nand a text"},
        {"_id": "d2", "title": "A title alone", "text": ""},
        {"_id": "d3", "text": "no title"},
    ]
    collection = read_beir(beir(corpus__jsonl=rows))
    assert collection.documents["d1"] == "A title\n\nA title\n\nand a text"
    assert collection.titles == {"d1": "A title", "d2": "A title alone"}
    assert [collection.parts(name) for name in collection.documents] == [
        ("A title", "A title\n\nand a text"),
        ("A title alone", ""),
        (None, "no title"),
    ]


def test_unknown_split_lists_existing_splits(beir):
    folder = beir()
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td3\t1\n")
    with pytest.raises(ConfigError, match="has no split 'train': expected one of dev, test"):
        read_beir(folder, split="train")


def test_documents_beside_judged_queries(beir, tmp_path):
    file = tmp_path / "judged.jsonl"
    file.write_text('{"_id": "a", "query": "first?", "relevant": {"d1": 2, "d3": 0}}\n')
    collection = read_jsonl_collection(file, beir() / "corpus.jsonl")
    assert (collection.name, collection.queries) == ("judged", {"a": "first?"})
    assert collection.relevance == {"a": {"d1": 2, "d3": 0}}
    assert collection.titles == {"d1": "A title"}
    file.write_text('{"query": "first?", "relevant": ["d1", "d7"]}\n')
    with pytest.raises(ConfigError, match=r"judged\.jsonl: 1 of 2 document ids are not in .*corpus\.jsonl: 'd7'"):
        read_jsonl_collection(file, beir() / "corpus.jsonl")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus__jsonl": "{}\n"}, r"corpus\.jsonl, line 1: '_id' is None: expected a string"),
        ({"corpus__jsonl": '{"_id": 3, "text": "a"}\n'}, "line 1: '_id' is 3: expected a string"),
        ({"corpus__jsonl": '{"_id": "3", "text": null}\n'}, "line 1: 'text' is None"),
        ({"corpus__jsonl": '{"_id": "3", "text": "", "title": 1}\n'}, "line 1: 'title' is 1"),
        ({"corpus__jsonl": '{"_id": "a", "text": ""}\n{"_id"'}, "line 2: not valid JSON"),
        ({"corpus__jsonl": "[1]\n"}, "line 1: got list: expected a JSON object"),
        ({"corpus__jsonl": '{"_id": "a", "text": ""}\n' * 2}, "line 2: a second line has the _id 'a'"),
        ({"queries__jsonl": '{"_id": "q1", "text": ""}\n' * 2}, r"queries\.jsonl, line 2: a second line"),
        (
            {"qrels": "query-id\tcorpus-id\tscore\nq7\td1\t1\n"},
            r"test\.tsv, line 2: queries\.jsonl has no .*'q7'",
        ),
        ({"qrels": "query-id\tcorpus-id\tscore\nq1\td1\t0.5\n"}, "line 2: the score is '0.5': expected an integer"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td1\t0\n"}, "line 3: document 'd1' is judged again"),
        ({"qrels": "q1\tQ0\td1\t1\n"}, "line 1: the header is"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq1\td1\t0\n"}, "no query of .* among the 3 documents read"),
        (
            {"qrels": "query-id\tcorpus-id\tscore\nq1\telsewhere\t1\nq1\td1\t0\nq2\tgone\t0\n"},
            r"test\.tsv: 2 of 3 document ids are not in .*corpus\.jsonl: 'elsewhere', 'gone'; correct the ids",
        ),
    ],
)
def test_collection_error_names_file_and_line(beir, changes, message):
    with pytest.raises(ConfigError, match=message):
        read_beir(beir(**changes))
