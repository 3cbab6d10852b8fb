import json

import pytest

from ragembed.errors import ConfigError
from ragembed.evaluation import read_beir, read_jsonl_collection


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


@pytest.mark.parametrize(
    ("name", "documents", "queries", "judged"), [("cran", 1400, 225, 1612), ("npl", 11426, 93, 2083)]
)
def test_real_collections(collections, name, documents, queries, judged):
    read = read_beir(collections / "retrieval" / name)
    assert len(read.documents) == documents
    assert len(read.queries) == queries
    assert sum(map(len, read.relevance.values())) == judged
