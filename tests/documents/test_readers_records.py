"""Readers of records and notebooks: csv, tsv, JSON lines, ipynb."""

from __future__ import annotations

import csv
import json

import pytest

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import ReadOptions, read
from ragembed.errors import ConfigError, DocumentError


def parsed(name: str, text: str, options: ReadOptions | None = None) -> list[ParsedDocument]:
    documents = list(read(name, text.encode(), options or ReadOptions()))
    for document in documents:
        assert document.line_numbers is not None
        assert len(document.line_numbers) == document.text.count("\n") + 1
        json.dumps(document.metadata)
    return documents


CSV = 'id,name,note\n1,Ann,"first\nsecond"\n\n2,Bob,\n3,,\n'


def test_csv_rows_are_documents_with_their_lines() -> None:
    first, second, third = parsed("a.csv", CSV)
    assert first.text == "id: 1\nname: Ann\nnote: first\nsecond"
    assert first.line_numbers == [2, 2, 2, 3]
    assert (second.text, second.line_numbers) == ("id: 2\nname: Bob", [5, 5])
    assert third.text == "id: 3"


def test_csv_columns_can_be_chosen() -> None:
    options = ReadOptions(text_columns=("note",), title_column="name")
    (document,) = parsed("a.csv", CSV, options)
    assert (document.text, document.title) == ("first\nsecond", "Ann")
    assert document.metadata == {"id": "1"}
    assert document.line_numbers == [2, 3]


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.csv", "a;b\n1,5;2\n"), ("a.tsv", "a\tb\n1,5\t2\n"), ("a.csv", "a\tb\r\n1,5\t2\r\n")],
)
def test_delimiters(name: str, text: str) -> None:
    assert [document.text for document in parsed(name, text)] == ["a: 1,5\nb: 2"]


def test_long_cells_do_not_change_the_csv_field_limit() -> None:
    limit = csv.field_size_limit()
    (document,) = parsed("a.csv", f"text\n{'x' * 200_000}\n")
    assert (len(document.text), csv.field_size_limit()) == (200_000, limit)


def test_extra_cells_give_a_warning() -> None:
    warnings: list[str] = []
    (document,) = parsed("a.csv", "a,\n1,2,3\n", ReadOptions(on_warning=warnings.append))
    assert document.text == "a: 1\ncolumn 2: 2"
    assert warnings == ["1 rows have more cells than the header; the extra cells are ignored"]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_unknown_columns_are_rejected(name: str) -> None:
    text = CSV if name == "a.csv" else '{"id": 1, "name": "x", "note": "y"}\n'
    with pytest.raises(ConfigError, match="unknown column 'nope': expected one of id, name, note"):
        parsed(name, text, ReadOptions(text_columns=("nope",)))


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.csv", "a,b\n", "contains no text"),
        ("a.csv", ",\n1,2\n", "no header"),
        ("a.jsonl", "nope\n[1]\n", "no line is a JSON object"),
        ("a.jsonl", '{"a": 1}\n', "contains no text"),
    ],
)
def test_files_without_records_are_rejected(name: str, text: str, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        parsed(name, text)


def test_json_lines_prefer_the_usual_keys() -> None:
    text = '{"title": "T", "text": "a\\nb", "other": "c", "n": 1}\n\n{"x": "p", "y": "q", "z": [1]}\n'
    first, second = parsed("a.jsonl", text)
    assert (first.text, first.title, first.metadata) == ("a\nb", "T", {"other": "c", "n": 1})
    assert first.line_numbers == [1, 1]
    assert (second.text, second.metadata, second.line_numbers) == ("x: p\ny: q", {"z": [1]}, [3, 3])


@pytest.mark.parametrize(
    ("line", "text", "metadata"),
    [
        ({"id": 3, "messages": [{"role": "user", "content": "Why?"}, {"role": "bot", "content": "It\nis."}]},
         "role: user\ncontent: Why?\nrole: bot\ncontent: It\nis.", ["id", "messages"]),
        ({"name": "Gate", "tags": ["old", "iron"], "size": {"metres": 6, "of": "tide"}, "vector": [1, 2]},
         "name: Gate\ntags: old, iron\nsize.metres: 6\nsize.of: tide", ["tags", "size", "vector"]),
        ({"content": [{"type": "text", "text": "Six metres."}], "more": "no"}, "type: text\ntext: Six metres.",
         ["content", "more"]),
        ({"text": "Words", "more": {"a": "b"}}, "Words", ["more"]),
        ({"turns": [["Ann", "Tea?"], ["Bob", "word " * 300]]}, f"Ann, Tea?, Bob\n{'word ' * 300}".strip(), []),
        ([{"role": "user", "content": "Hi"}], "role: user\ncontent: Hi", ["text"]),
        ("Only words", "Only words", []),
    ],
)  # fmt: skip
def test_nested_texts_of_json_lines_are_read(line: object, text: str, metadata: list[str]) -> None:
    (document,) = parsed("a.jsonl", json.dumps(line))
    assert (document.text, list(document.metadata)) == (text, metadata)


def test_json_lines_with_endless_paths_are_left_out() -> None:
    warnings: list[str] = []
    line = json.dumps({"k" * 1_000_000: {f"a{n}": "x" for n in range(1_000)}})
    documents = parsed("a.jsonl", line + '\n{"text": "x"}\n', ReadOptions(on_warning=warnings.append))
    assert [document.text for document in documents] == ["x"]
    assert "1 lines are not JSON objects" in warnings[0]


def test_json_lines_columns_can_be_chosen() -> None:
    options = ReadOptions(text_columns=("x", "n"), title_column="t")
    (document,) = parsed("a.jsonl", '{"x": "p", "n": {"k": 1}, "t": "T", "text": "no"}\n', options)
    assert (document.text, document.title) == ('x: p\nn: {"k": 1}', "T")
    assert document.metadata == {"text": "no"}


def test_bad_json_lines_are_counted_in_a_warning() -> None:
    warnings: list[str] = []
    lines = ['{"text": "a"}', "{", "[]", '{"text": "b"}', "1"]
    documents = parsed("a.jsonl", "\n".join(lines), ReadOptions(on_warning=warnings.append))
    assert [document.text for document in documents] == ["a", "b"]
    assert warnings == ["3 lines are not JSON objects of at most 200 levels (first: line 2)"]


def test_json_lines_metadata_is_json_and_text_is_well_formed() -> None:
    (document,) = parsed("a.jsonl", '{"text": "\\ud83d\\ude00 \\ud800", "n": NaN, "i": [-1e999, 1e99]}\n')
    assert document.text == "\U0001f600 \ufffd"
    assert document.metadata == {"n": None, "i": [None, 1e99]}


def notebook(indent: int | None) -> str:
    cells = [
        {"cell_type": "markdown", "metadata": {"source": ["x = 1\n"]}, "source": ["# Title\n", "\n", "words"]},
        {
            "cell_type": "code",
            "execution_count": 1,
            "metadata": {},
            "outputs": [{"output_type": "stream", "text": ["x = 1\n", '"source": [\n']}],
            "source": ["x = 1\n", "\n", "print(x)"],
        },
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": []},
        {"cell_type": "markdown", "metadata": {}, "source": "## One\n\nstring"},
        {"cell_type": "raw", "metadata": {}, "source": ["raw"]},
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=indent)


def test_notebook_cells_and_outputs_become_blocks() -> None:
    (document,) = parsed("a.ipynb", notebook(1))
    assert [(block.kind, document.text[block.start : block.end], block.headings) for block in document.blocks] == [
        ("heading", "# Title", ("Title",)),
        ("text", "words", ("Title",)),
        ("code", "x = 1\n\nprint(x)", ("Title",)),
        ("code", 'x = 1\n"source": [', ("Title",)),
        ("heading", "## One", ("Title", "One")),
        ("text", "string", ("Title", "One")),
        ("text", "raw", ("Title", "One")),
    ]
    assert document.title == "Title"


def test_notebook_lines_match_the_json_file() -> None:
    raw = notebook(1)
    (document,) = parsed("a.ipynb", raw)
    assert document.line_numbers is not None
    source = raw.split("\n")
    found = [
        (line, source[number - 1].strip())
        for line, number in zip(document.text.split("\n"), document.line_numbers, strict=True)
        if line
    ]
    assert found == [
        ("# Title", '"# Title\\n",'),
        ("words", '"words"'),
        ("x = 1", '"x = 1\\n",'),
        ("print(x)", '"print(x)"'),
        ("x = 1", '"x = 1\\n",'),
        ('"source": [', '"\\"source\\": [\\n"'),
        ("## One", '"source": "## One\\n\\nstring"'),
        ("string", '"source": "## One\\n\\nstring"'),
        ("raw", '"raw"'),
    ]
    assert document.line_numbers[4] == raw[: raw.rindex('"x = 1\\n"')].count("\n") + 1


def test_notebook_on_one_line() -> None:
    (document,) = parsed("a.ipynb", notebook(None))
    assert set(document.line_numbers or ()) == {1}


def test_notebook_of_format_three() -> None:
    raw = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["y = 2"], "outputs": []}]}]}
    (document,) = parsed("a.ipynb", json.dumps(raw, indent=1))
    assert (document.text, document.line_numbers) == ("y = 2\n", [8, 8])


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "invalid notebook JSON"), ("[]", "no list of cells"), ('{"cells": [1]}', "no list of cells"),
     ('{"worksheets": [5]}', "no list of cells"),
     ('{"cells": []}', "contains no text"), ("[" * 100_000, "invalid notebook JSON"),
     ('{"cells": [{"cell_type": "code", "source": 5}]}', "contains no text")],
)  # fmt: skip
def test_broken_notebooks_are_rejected(text: str, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        parsed("a.ipynb", text)


MANY = 30_000
"""Number of columns, keys or rows at which quadratic work would take many minutes."""


@pytest.mark.parametrize(
    ("name", "text", "documents"),
    [
        ("a.csv", ",".join(["a"] * MANY) + "\n" + ",".join(["x"] * MANY) + "\n", 1),
        ("a.csv", ",".join(f"a{i}" for i in range(MANY)) + "\n" + "x\n" * MANY, MANY),
        ("a.jsonl", "{" + ",".join(f'"k{i}": "v"' for i in range(MANY)) + "}\n", 1),
        ("a.jsonl", "{" + ",".join(['"k": "v"'] * MANY) + "}\n", 1),
        ("a.json", "{" + ",".join(['"k": "v"'] * MANY) + "}\n", 1),
        ("a.json", "{" + ",".join(['"k": [1]'] * MANY) + "}\n", 1),
        ("a.html", "<ul><li>x" * (MANY // 10), 1),
        ("a.xml", "<a " + " ".join(f'b{i}="v"' for i in range(MANY)) + ">text</a>", 1),
    ],
    ids=["equal columns", "short rows", "keys", "equal keys", "json", "json lists", "nested lists", "attributes"],
)
def test_many_names_take_linear_time(name: str, text: str, documents: int) -> None:
    found = list(read(name, text.encode()))
    assert len(found) == documents
    assert sum(len(document.text) for document in found) < 10 * len(text)


@pytest.mark.parametrize("text_columns", [(), ("a",)])
def test_numbered_columns_are_not_confused(text_columns: tuple[str, ...]) -> None:
    text = "a 3,a,a,a\n1,2,3,4\n"
    (document,) = parsed("a.csv", text, ReadOptions(text_columns=text_columns))
    values = dict(line.split(": ") for line in document.text.split("\n")) if not text_columns else document.metadata
    assert {**values, "a": "2"} == {"a 3": "1", "a": "2", "a 3 3": "3", "a 4": "4"}


def test_unknown_column_names_some_columns() -> None:
    with pytest.raises(ConfigError) as error:
        parsed("a.csv", ",".join(f"a{i}" for i in range(1_000)) + "\nx\n", ReadOptions(text_columns=("b",)))
    assert len(str(error.value)) < 500


def test_json_with_endless_paths_is_read_as_text() -> None:
    warnings: list[str] = []
    text = '{"' + "k" * 1_000_000 + '": {' + ",".join(['"a": 1'] * 20_000) + "}}"
    (document,) = read("a.json", text.encode(), ReadOptions(on_warning=warnings.append))
    assert document.text == text
    assert "the paths of the values are more than 10 times as long as the file" in warnings[0]
