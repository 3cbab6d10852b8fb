"""Conditions: parsing of every form, and messages with the position of a mistake."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.errors import ConfigError
from ragembed.indexes.filters import And, Comparison, Contains, Exists, Field, Glob, In, Like, Not, Or
from ragembed.indexes.filters.where import parse_where

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "filters.md"
X = Field("x")
ONE = Comparison(X, "=", 1)
PIECES = [
    "x",
    "mtime",
    ".",
    "=",
    "(",
    ")",
    ",",
    "'a'",
    '"b"',
    "'",
    "-1",
    "and",
    "not",
    "in",
    "is",
    "null",
    "like",
    "between",
    "metadata",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", ONE),
        ("x == 1", ONE),
        ("x=1", ONE),
        ("x != 1", Not(ONE)),
        ("x >= 1", Comparison(X, ">=", 1)),
        ("x IN (1, 'a', true)", In(X, (1, "a", True))),
        ("x IN (1, null)", Or((In(X, (1,)), Not(Exists(X))))),
        ("x not like 'a%'", Not(Like(X, "a%"))),
        ("x GLOB 'a*'", Glob(X, "a*")),
        ("x CONTAINS 'a'", Contains(X, "a")),
        ("x NOT CONTAINS null", Not(Contains(X, None))),
        ("'a' IN x", Contains(X, "a")),
        ("x BETWEEN 1 AND 2", And((Comparison(X, ">=", 1), Comparison(X, "<=", 2)))),
        ("x NOT BETWEEN 1 AND 2", Not(And((Comparison(X, ">=", 1), Comparison(X, "<=", 2))))),
        ("x IS NULL", Not(Exists(X))),
        ("x Is Not Null", Exists(X)),
        ("x = null", Not(Exists(X))),
        ("NOT x = 1", Not(ONE)),
    ],
)
def test_conditions_are_parsed(text, expected):
    assert parse_where(text) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'it''s'", "it's"),
        ("'say \"so\"'", 'say "so"'),
        ("'a\nb'", "a\nb"),
        ("-5", -5),
        (".5", 0.5),
        ("-1.5e-3", -0.0015),
        ("9223372036854775808", 2**63),
        ("FALSE", False),
    ],
)
def test_literals(text, value):
    found = parse_where(f"x = {text}")
    assert found == Comparison(X, "=", value)
    assert type(found.value) is type(value)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("größe", Field("größe")),
        ("a.b.c", Field("a", nested=("b", "c"))),
        ("metadata.a.b", Field("a", metadata=True, nested=("b",))),
        ('"metadata".a', Field("metadata", nested=("a",))),
        ('metadata."a.b"', Field("a.b", metadata=True)),
        ('"say ""so"""', Field('say "so"')),
        ("ANDY", Field("ANDY")),
    ],
)
def test_fields(text, field):
    assert parse_where(f"{text} IS NOT NULL") == Exists(field)


def test_metadata_names_are_not_properties():
    assert parse_where("page = 1").field.property_name == "page"
    for text in ("metadata.page = 1", "page.x = 1", "year = 1", "metadata = 1"):
        assert parse_where(text).field.property_name is None, text


def test_not_binds_tighter_than_and_and_and_tighter_than_or():
    a, b, c = (Comparison(Field(name), "=", 1) for name in "abc")
    assert parse_where("a = 1 OR b = 1 AND c = 1") == Or((a, And((b, c))))
    assert parse_where("(a = 1 OR b = 1) AND c = 1") == And((Or((a, b)), c))
    assert parse_where("NOT a = 1 AND b = 1") == And((Not(a), b))
    assert parse_where("NOT (a = 1 AND b = 1)") == Not(And((a, b)))
    assert parse_where("a = 1 AND b = 1 AND c = 1") == And((a, b, c))
    assert parse_where("a BETWEEN 1 AND 2 AND b = 1").operands[1] == b


@pytest.mark.parametrize("text", ["(" * 10_000 + "x = 1" + ")" * 10_000, "NOT " * 10_000 + "x = 1", "(NOT " * 5_000])
def test_deep_nesting_raises(text):
    with pytest.raises(ConfigError, match=r"more than 100 levels of NOT and parentheses at character [0-9]+"):
        parse_where(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ext = ", "expected a value after '=' at character 7, got end of text: write it as ext = 'md'"),
        ("ext", "expected =, !=, .* or IS NULL after ext at character 4, got end of text: write it as ext = 'md'"),
        ("doc id = 3", "after doc at character 5, got 'id': put names with characters other than .* in double quotes"),
        ("ext = md", "expected a value after '=' at character 7, got 'md': put strings in single quotes"),
        ("ext IN ('md' 'rst')", "expected ',' or '\\)' in the list after IN at character 14, got 'rst'"),
        ("ext IN 'md'", "expected '\\(' after IN at character 8, got 'md': write it as ext IN \\('md', 'rst'\\)"),
        ("x BETWEEN 1", "expected AND and a second value after BETWEEN at character 12, got end of text"),
        ("x IS 1", "expected NULL after IS at character 6, got '1': compare other values with ="),
        ("x = 1 y = 2", "expected AND, OR or the end at character 7, got 'y': join conditions with AND or OR"),
        ("(x = 1", "expected '\\)' at character 7, got end of text: close the '\\(' at character 1, or leave it out"),
        ("AND x = 1", "expected a field at character 1, got 'and': put a field of that name .* as in \"and\" = 'x'"),
        ("'md' = ext", "expected a field at character 1, got 'md': put the field before its value"),
        ("a. = 1", "expected a name after '.' at character 4, got '='"),
        ("x = 'a", "the string \"'a\" does not end at character 5: close it with ', and double any ' in it"),
        ('"x = 1', "the name '\"x = 1' does not end at character 1: close it with \""),
        ("doc-id = 3", "unexpected '-' at character 4: .*; put names with characters other"),
        ("x = 1; DROP TABLE chunks", "unexpected ';' at character 6"),
        ("x = ‘md’", "unexpected '‘' at character 5: put strings in single quotes"),
        ("x = \0", "unexpected '\\\\x00' at character 5"),
        (
            "size > 20M",
            "'20M' is not a number at character 8: put dates and other strings in single quotes, as in '20M'",
        ),
        ("mtime > 2026-01-01", "'2026-01-01' is not a number at character 9: put dates .* as in '2026-01-01'"),
        ("x = 1e999", "at character 5: x is compared with inf: expected a number that a float can hold"),
        ("x = " + "9" * 5000, "a number with 5000 characters at character 5"),
        ("x < null", "at character 5: x is compared with null, which has no order"),
        ("x < true", "at character 5: x < True: true and false have no order"),
        ("x LIKE 5", "at character 8: the pattern for x is 5: expected a string, not int"),
        ("path GLOB 'docs/'", "at character 11: the glob 'docs/' has nothing after a '/'"),
        ("mtime > 'yesterday'", "at character 9: 'yesterday' is not a time: expected a date such as '2026-01-31'"),
        ("day > '2026-13-01'", "at character 7: '2026-13-01' is not a time: expected a date such as '2026-01-31'"),
        ("day BETWEEN '2026-01-01' AND '2026-02-30'", "'2026-02-30' is not a time"),
        ("day < '2026-01-31 25:00'", "'2026-01-31 25:00' is not a time"),
        ("mtime = true", "at character 9: mtime is a time: expected a date or seconds since 1970, not True"),
        ("mtime LIKE '2026%'", "at character 12: mtime is a time, not a text: compare it with a date"),
        (
            "size = 'big'",
            "at character 8: size is compared with 'big': expected a number of bytes; write metadata.size",
        ),
        ("size LIKE '1%'", "size is a number of bytes: expected a comparison, as in size > 1000000"),
        ("'a' NOT x", "expected IN at character 9, got 'x': write it as 'value' NOT IN field"),
        ("'a' IN ('b')", "expected a field at character 8"),
        ("ext = 5", "at character 7: ext is compared with 5: expected a string; write metadata.ext for metadata"),
        (".".join(["a"] * 17) + " = 1", "at character 1: .* has 17 steps: expected at most 16"),
    ],
)
def test_syntax_error_has_a_position(text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_where(text)
    assert "--where" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("metadata.size = 'big'", Comparison(Field("size", metadata=True), "=", "big")),
        ("metadata.mtime LIKE '2026%'", Like(Field("mtime", metadata=True), "2026%")),
        ("size = null", Not(Exists(Field("size")))),
    ],
)
def test_metadata_accepts_values_that_properties_reject(text, expected):
    assert parse_where(text) == expected


@given(st.text() | st.lists(st.sampled_from(PIECES)).map(" ".join))
def test_any_text_is_parsed_or_raises_with_a_position(text):
    message = "at character 1"
    try:
        parse_where(text)
    except ConfigError as error:
        message = str(error)
    assert re.search("at character [0-9]+", message)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_any_text_can_be_quoted(text):
    quoted, name = text.replace("'", "''"), text.replace('"', '""')
    assert parse_where(f"\"{name}\" = '{quoted}' and metadata.\"{name}\" like ''").operands[1] == Like(
        Field(text, metadata=True), ""
    )
    assert parse_where(f"x = '{quoted}'") == Comparison(X, "=", text)


def test_examples_in_the_documentation_are_valid():
    examples = "".join(re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    assert len(examples.splitlines()) >= 8
    for line in examples.splitlines():
        parse_where(line)
