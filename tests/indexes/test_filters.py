"""Filters select chunks by typed comparisons with exact complements, for any names and values."""

import fnmatch
import json
import sqlite3
import time
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.errors import ConfigError
from ragembed.indexes.filters import (
    And,
    Comparison,
    Contains,
    Exists,
    Field,
    Glob,
    In,
    Like,
    Not,
    Or,
    parse,
    register,
    to_sql,
)
from ragembed.indexes.filters.globs import glob_matches, path_glob_matches
from ragembed.indexes.filters.nodes import nanoseconds
from ragembed.indexes.filters.where import parse_where

SECOND = 1_000_000_000
NEW_YEAR = 1_767_225_600  # 2026-01-01 in UTC
TABLES = """
CREATE TABLE sources (id INTEGER PRIMARY KEY, path TEXT NOT NULL, ext TEXT NOT NULL, size INTEGER, mtime_ns INTEGER);
CREATE TABLE chunks (
    key INTEGER PRIMARY KEY, id TEXT, row INTEGER, source INTEGER, text TEXT, title TEXT, headings TEXT,
    start_line INTEGER, end_line INTEGER, page INTEGER, later_pages TEXT, tokens INTEGER, metadata TEXT
);
"""
FILE = {"path": "docs/a.md", "ext": "md", "size": 100, "mtime_ns": NEW_YEAR * SECOND}
HOSTILE = [
    '"; DROP TABLE chunks; --',
    "?1",
    '$."x"',
    "a.b",
    "",
    "\\u0041",
    "\n\t",
    "😀",
    "x" * 5000,
]


def chunk(metadata=None, file=None, headings=(), **fields):
    return {"metadata": metadata or {}, "file": file, "headings": list(headings), **fields}


def database(chunks):
    connection = sqlite3.connect(":memory:")
    register(connection)
    connection.executescript(TABLES)
    for key, one in enumerate(chunks):
        if one["file"] is not None:
            file = one["file"]
            values = (key, file["path"], file["ext"], file["size"], file["mtime_ns"])
            connection.execute("INSERT INTO sources VALUES (?, ?, ?, ?, ?)", values)
        connection.execute(
            "INSERT INTO chunks VALUES (?, ?, 0, ?, '', ?, ?, ?, ?, ?, ?, 1, ?)",
            (
                key,
                str(key),
                None if one["file"] is None else key,
                one.get("title"),
                json.dumps(one["headings"], ensure_ascii=False),
                one.get("start_line"),
                one.get("end_line"),
                one.get("page"),
                one.get("later_pages"),
                json.dumps(one["metadata"]),
            ),
        )
    return connection


def selected(connection, where):
    condition, values = to_sql(parse(where))
    found = connection.execute(
        f"SELECT c.key FROM chunks c LEFT JOIN sources s ON s.id = c.source WHERE 1 AND {condition} ORDER BY c.key",
        values,
    )
    return [key for (key,) in found]


def select(chunks, where):
    connection = database(chunks)
    try:
        return selected(connection, where)
    finally:
        connection.close()


def holds(where, metadata=None, **fields):
    return select([chunk(metadata, **fields)], where) == [0]


# Types and missing values


@pytest.mark.parametrize(
    ("metadata", "where", "expected"),
    [
        ({"year": 2020}, "year = 2020", True),
        ({"year": 2020}, "year = '2020'", False),
        ({"year": True}, "year = 1", False),
        ({"year": 1}, "year = true", False),
        ({"year": False}, "year IN (0, 'false')", False),
        ({"year": {"a": 1}}, "year = '{\"a\":1}'", False),
        ({"name": "B"}, "name < 'a'", True),
        ({"name": "😀"}, "name > '\ufffd'", True),
        ({"name": "a"}, "name = 'A'", False),
        ({"x": 0.30000000000000004}, "x = 0.3", False),
        ({"x": 2**53 + 1}, f"x = {2**53 + 1}", True),
        ({"x": 2**53 + 1}, "x = 9007199254740992.0", False),
        ({"x": 2**70}, f"x = {2**70}", True),
        ({"x": 10**308}, f"x >= {10**308}", True),
    ],
)
def test_values_are_compared_only_within_their_type(metadata, where, expected):
    assert holds(where, metadata) is expected
    assert holds(f"NOT ({where})", metadata) is not expected


@pytest.mark.parametrize("metadata", [{}, {"x": None}, {"X": 1}])
def test_a_missing_field_makes_a_comparison_false(metadata):
    for where in ("x = 1", "x < 'a'", "x > 0", "x IN (1, 'a', true)", "x CONTAINS 'a'", "x LIKE '%'", "x GLOB '*'"):
        assert not holds(where, metadata), where
        assert holds(f"NOT {where}", metadata), where
    for where in ("x != 1", "x NOT IN (1)", "x NOT LIKE '%'", "x NOT BETWEEN 1 AND 2", "x IS NULL", "x = null"):
        assert holds(where, metadata), where
    assert not holds("x IS NOT NULL", metadata)
    assert holds("x IN (1, null)", metadata)
    assert not holds("x NOT IN (1, null)", metadata)


def test_an_empty_list_selects_nothing_and_its_complement_all():
    assert not holds("x IN ()", {"x": 1})
    assert holds("x NOT IN ()", {"x": 1})
    assert holds({"x": {"$nin": []}})


@pytest.mark.parametrize(
    ("value", "where", "expected"),
    [
        (["a", "b"], "x CONTAINS 'a'", True),
        ([1, 2.0], "x CONTAINS 2", True),
        ([True], "x CONTAINS 1", False),
        ([None], "x CONTAINS null", True),
        ([["a"]], "x CONTAINS 'a'", False),
        ("writer lock", "x CONTAINS 'lock'", True),
        ("writer lock", "x CONTAINS 'Lock'", False),
        ("x", "x CONTAINS ''", True),
        ({"a": "b"}, "x CONTAINS 'b'", False),
    ],
)
def test_contains_matches_an_element_or_a_substring(value, where, expected):
    assert holds(where, {"x": value}) is expected


@pytest.mark.parametrize(
    ("value", "where", "expected"),
    [
        ("Writer", "x LIKE 'wri%'", True),
        ("Writer", "x LIKE 'rit'", False),
        ("a/b", "x GLOB '*b'", True),
        ("Ab", "x GLOB 'a*'", False),
        ("b2", "x GLOB '[a-c][!13]'", True),
        (True, "x GLOB '*'", False),
        ("a\ud800b", "x GLOB 'a*b'", True),
    ],
)
def test_patterns_match_only_strings(value, where, expected):
    assert holds(where, {"x": value}) is expected


# Properties


def test_property_takes_precedence_over_metadata():
    metadata = {"path": "m", "source": "m", "ext": "m", "title": "m", "page": 7, "headings": ["m"], "size": 7}
    full = chunk(metadata, FILE, headings=["h"], title="t", page=2, start_line=3, end_line=4)
    bare = chunk(metadata)
    for where in (
        "path = 'docs/a.md'",
        "source = 'docs/a.md'",
        "ext = 'md'",
        "title = 't'",
        "page = 2",
        "headings CONTAINS 'h'",
        "size = 100",
    ):
        assert select([full, bare], where) == [0], where
    for where in ("path = 'm'", "ext IN ('m')", "title LIKE 'm'", "page >= 7", "headings CONTAINS 'm'", "size = 7"):
        assert select([full, bare], where) == [1], where
    for where in ("metadata.path = 'm'", "metadata.page = 7", "metadata.size > 1", "metadata.headings CONTAINS 'm'"):
        assert select([full, bare], where) == [0, 1], where


def test_missing_properties():
    fields = ("path", "source", "ext", "size", "mtime", "title", "headings", "start_line", "end_line", "page")
    whole = chunk({}, FILE, headings=["h"], title="", page=1, start_line=1, end_line=1)
    for field in fields:
        assert select([chunk(), whole], f"{field} IS NULL") == [0], field
        assert select([chunk(), whole], {field: {"$exists": True}}) == [1], field


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("page = 4", [0]), ("page = 5", [0, 1]), ("page = 6", []), ("page != 4", [1]), ("page > 4", [0, 1]),
        ("page <= 2", [0]), ("page NOT IN (2, 3)", [1]), ("page BETWEEN 3 AND 4", [0]),
    ],
)  # fmt: skip
def test_a_chunk_is_on_each_of_its_pages(where: str, keys: list[int]) -> None:
    chunks = [chunk({}, FILE, page=2, later_pages="[[3, 3], [9, 5]]"), chunk({}, {**FILE, "path": "b"}, page=5)]
    assert select(chunks, where) == keys


def test_database_columns_keep_numbers_and_strings_apart():
    one = chunk({}, {**FILE, "path": "5", "ext": "5", "size": 5}, title="5", page=5)
    assert select([one], "title = '5' AND page = 5 AND ext = '5' AND size = 5.0 AND page IN (5.0, 'x')") == [0]
    for where in (
        "title = 5",
        "page = '5'",
        "title IN (5)",
        "page IN ('5')",
        "page = true",
        "title < 9",
        "page LIKE '5'",
    ):
        assert select([one], where) == [], where
    for where in ({"ext": 5}, {"size": "5"}, {"path": 5}, {"path": {"$in": [5]}}, {"size": {"$like": "5"}}):
        assert select([one], where) == [], where


def test_extensions_are_compared_without_dot_and_case():
    assert holds("ext = '.MD'", file=FILE)
    assert holds({"ext": {"$in": ["PDF", "Md"]}}, file=FILE)
    assert holds({"ext": {"$gte": ".MA"}}, file=FILE)


def test_metadata_values_are_compared_unchanged():
    assert holds({"ext": ".MD"}, {"ext": ".MD"})
    assert not holds({"ext": ".MD"}, {"ext": "md"})
    assert holds("mtime >= '2026-01-01'", {"mtime": "2026-02-01"})
    assert not holds("mtime >= '2026-01-01'", {"mtime": NEW_YEAR * 2})
    assert holds(f"mtime >= {NEW_YEAR}", {"mtime": NEW_YEAR})


def test_headings_are_a_list():
    one = chunk({"headings": "metadata"}, headings=["Install", "it's"])
    assert select([one], "headings CONTAINS 'it''s'") == [0]
    for where in ("headings CONTAINS 'Inst'", "headings = 'Install'", "headings LIKE '%'", "headings = 'metadata'"):
        assert select([one], where) == [], where


# Times


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("mtime = '2026-01-01T01:00+01:00'", True),
        ("mtime > '2025-12-31T23:59:59.999999999Z'", True),
        ("mtime > '2026-01-01T00:00:00.000000001Z'", False),
        (f"mtime IN ({NEW_YEAR}, '2020-01-01')", True),
        ("mtime BETWEEN '2025-01-01' AND '2027-01-01'", True),
        ("mtime < 1e200", True),
    ],
)
def test_times_are_dates_or_seconds(where, expected):
    assert holds(where, file=FILE) is expected


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone of a process cannot be set here")
def test_a_date_without_an_offset_is_local(monkeypatch):
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        assert nanoseconds("2026-01-01") == (NEW_YEAR - 3600) * SECOND
        assert nanoseconds("2026-07-01T12:00") == nanoseconds("2026-07-01T10:00Z")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_seconds_become_nanoseconds_without_loss():
    assert nanoseconds(NEW_YEAR) == NEW_YEAR * SECOND
    assert nanoseconds(0.5) == SECOND // 2
    assert nanoseconds(-1) == -SECOND
    assert nanoseconds("1969-12-31T23:59:59.5Z") == -SECOND // 2


@pytest.mark.parametrize(
    "value",
    [
        "yesterday",
        "2026-13-01",
        "2026-01-01\n",
        "２０２６-01-01",
        1e308,
    ],
)
def test_invalid_time_raises(value):
    with pytest.raises(ConfigError, match="is not a time: expected a date such as '2026-01-31'"):
        Comparison(Field("mtime"), ">", value)


# Moments in metadata

NOON = "2025-03-01T12:00:00Z"
SAME = [
    "2025-03-01 12:00:00",
    "2025-03-01T12:00:00,0000000000000Z",
    "2025-03-01T14+02",
    "2025-03-01T07:30-04:30",
]


@pytest.mark.parametrize(
    ("stored", "written"),
    [
        *((stored, NOON) for stored in (NOON, *SAME)),
        *((NOON, written) for written in SAME),
        (NOON, datetime(2025, 3, 1, 12)),
        (NOON, datetime(2025, 3, 1, 12, tzinfo=timezone.utc)),
    ],
)
def test_texts_of_one_moment_are_equal(stored, written):
    for metadata in ({"x": stored}, {"x": {"y": stored}}, {"x": ["v2", stored]}):
        one, field = database([chunk(metadata)]), Field("x", nested=("y",) if isinstance(metadata["x"], dict) else ())
        if isinstance(metadata["x"], list):
            assert selected(one, Contains(field, written)) == [0]
            continue
        for condition in (
            *(Comparison(field, operator, written) for operator in ("=", "<=", ">=")),
            In(field, ("v2", written)),
            Or((Comparison(field, "=", "v2"), Comparison(field, "=", written))),
        ):
            assert selected(one, condition) == [0], condition
            assert selected(one, Not(condition)) == [], condition
        for operator in ("<", ">"):
            assert selected(one, Comparison(field, operator, written)) == []
        one.close()


@pytest.mark.parametrize(
    ("metadata", "where", "expected"),
    [
        ("2025-03-01", "x = '2025-03-01T00:00Z'", True),
        ("2025-02-28T24:00", "x = '2025-03-01'", True),
        ("2025-03-01T01:00:00+02:00", "x < '2025-03-01'", True),
        ("2025-03-01T12:00:00.10000000000000000001Z", "x > '2025-03-01T12:00:00.1Z'", True),
        ("2025-03-01T12:00:00.5Z", "x BETWEEN '2025-03-01T12:00:00Z' AND '2025-03-01T12:00:01Z'", True),
        ("9999-12-31T23:59-23:59", "x > '9999-12-31T23:59:59.9'", True),
        ("2025-03-01", "x LIKE '2025-03-01'", True),
        ("2025-03-01T00:00Z", "x LIKE '2025-03-01'", False),
        ("2025-03-01T00:00Z", "x IN ('2025', '2025-03')", False),
        ("2025", "x = '2025-01-01'", False),
        (20250301, "x >= '2025-03-01'", False),
    ],
)
def test_moments_are_ordered_and_other_texts_stay_texts(metadata, where, expected):
    assert holds(where, {"x": metadata}) is expected
    assert holds(f"NOT ({where})", {"x": metadata}) is not expected


def test_deepest_filters_can_compare_moments():
    where = Comparison(Field("x"), "<", NOON)
    for level in range(28):
        where = (And, Or)[level % 2]((Comparison(Field("x"), "=", NOON), where))
    assert holds(where, {"x": NOON})
    assert holds({"$and": [{"x": {"$lte": NOON}}] * 999}, {"x": NOON})


# Globs on paths


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.md", "a.md", True),
        ("*.md", "docs/deep/a.md", True),
        ("docs/*.md", "docs/deep/a.md", False),
        ("docs/**/*.md", "docs/deep/er/a.md", True),
        ("docs/**/*.md", "other/docs/a.md", False),
        ("docs/**", "docs/deep/a.md", True),
        ("**/x/**/y", "a/x/b/x/c/y", True),
        ("docs/a?md", "docs/a/md", False),
        ("docs/[!a]b", "docs//b", False),
        ("docs/[]-]", "docs/-", True),
        ("docs/[[]x].md", "docs/[x].md", True),
        ("docs/*", "docs/.hidden", True),
        ("../*/a.md", "../b/a.md", True),
        ("x/*", "/x/a.md", False),
    ],
)
def test_path_globs(pattern, path, expected):
    assert path_glob_matches(path, pattern) is expected
    assert holds(Glob(Field("path"), pattern), file={**FILE, "path": path}) is expected
    assert holds(Glob(Field("source"), pattern), {"source": path}) is expected


def test_only_path_and_source_match_as_paths():
    one = chunk({"path": "docs/a/b", "url": "docs/a/b"}, {**FILE, "path": "docs/a/b"})
    assert select([one], "path GLOB 'docs/*'") == []
    assert select([one], "metadata.path GLOB 'docs/*' AND url GLOB 'docs/*'") == [0]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("docs/", "has nothing after a '/'.*to match everything below a folder, write 'docs/\\*\\*'"),
        ("docs/[a", "has a '\\[' without a '\\]'"),
        ("[z-a]", "has the range z-a: expected the lower end first"),
        ("x" * 1001, "has 1001 characters: expected at most 1000"),
        ("a\0", "U\\+0000"),
    ],
)
def test_invalid_glob_raises(pattern, message):
    with pytest.raises(ConfigError, match=message):
        Glob(Field("path"), pattern)


@given(st.text("ab/*?[]!-^&~|.\\\n", max_size=8), st.text("ab/*?[]!-^&~|.\\\n", max_size=8))
def test_text_glob_equals_fnmatch(pattern, text):
    try:
        found = glob_matches(text, pattern)
    except ConfigError:
        return
    assert found is fnmatch.fnmatchcase(text, pattern.replace("[^", "[!"))


def test_patterns_with_many_stars_match_fast():
    assert not glob_matches("a" * 10_000, "*a" * 400 + "b")
    assert not path_glob_matches("a/" * 1000 + "b", "**/a/" * 150 + "c")
    assert not holds(Like(Field("x"), "%a" * 400 + "b"), {"x": "a" * 500})


# Names and values are never SQL


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_can_be_a_name_or_a_value(text):
    chunks = [
        chunk({text: text, "other": "x"}),
        chunk({"x": "other"}),
        chunk({"list": [text]}),
        chunk({"o": {text: 1}}),
    ]
    field = Field(text, metadata=True)
    connection = database(chunks)
    assert selected(connection, Comparison(field, "=", text)) == [0]
    assert selected(connection, Comparison(Field("o", nested=(text,)), "=", 1)) == [3]
    if not text.startswith("$"):  # an operator
        assert selected(connection, {text + "!": text}) == []
        assert selected(connection, {text: text}) == [0]
    assert selected(connection, {"other": {"$ne": text}}) == [0, 1, 2, 3]
    assert selected(connection, {"list": {"$contains": text}}) == [2]
    assert selected(connection, In(field, (text, "y"))) == [0]
    assert selected(connection, Contains(field, text)) == [0]
    quoted, name = text.replace("'", "''"), text.replace('"', '""')
    assert selected(connection, f"metadata.\"{name}\" = '{quoted}' AND metadata.\"{name}\" IN ('{quoted}')") == [0]
    assert selected(connection, f"o.\"{name}\" = 1 OR list CONTAINS '{quoted}'") == [2, 3]
    assert connection.execute("SELECT count(*) FROM chunks").fetchone() == (4,)
    connection.close()


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x\udfff"])
def test_texts_that_sqlite_cannot_compare_raise(text):
    for make in (
        lambda: Field(text),
        lambda: Field("x", nested=(text,)),
        lambda: Comparison(Field("x"), "=", text),
        lambda: In(Field("x"), (text,)),
        lambda: Contains(Field("x"), text),
        lambda: Like(Field("x"), text),
        lambda: Glob(Field("x"), text),
        lambda: parse({text: 1}),
        lambda: parse({"x": text}),
        lambda: parse(f"x = '{text}'"),
        lambda: parse(f'"{text}" = 1'),
    ):
        with pytest.raises(ConfigError, match="leave it out"):
            make()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "with nan: expected a number that a float can hold"),
        (10**400, "with a number of more than 308 digits: expected a number"),
        (b"x", "of type bytes: expected a string, a number, true or false"),
    ],
)
def test_values_outside_json_raise(value, message):
    for make in (lambda: Comparison(Field("x"), "=", value), lambda: In(Field("x"), (value,))):
        with pytest.raises(ConfigError, match=message):
            make()


def test_unknown_operator_raises():
    with pytest.raises(ConfigError, match="unknown comparison '= 1 OR 1': expected one of = < <= > >="):
        Comparison(Field("x"), "= 1 OR 1", 1)


def test_number_of_steps_in_a_field_is_bounded():
    keys = [f"k{at}" for at in range(16)]
    value = 1
    for key in reversed(keys):
        value = {key: value}
    assert holds(Comparison(Field(keys[0], nested=tuple(keys[1:])), "=", 1), value)
    with pytest.raises(ConfigError, match="has 17 steps: expected at most 16"):
        Field("a", nested=("b",) * 16)


def test_nested_keys_work_only_in_objects():
    chunks = [chunk({"a": {"b": 1}}), chunk({"a.b": 1}), chunk({"a": [1]}), chunk({"a": '{"b": 1}'}), chunk({"b": 1})]
    assert select(chunks, "a.b = 1") == [0]
    assert select(chunks, "metadata.a.b = 1") == [0]
    assert select(chunks, '"a.b" = 1') == [1]
    assert select(chunks, {"a.b": 1}) == [1]
    assert select(chunks, 'a."0" = 1') == []
    assert select(chunks, "a.b IS NULL") == [1, 2, 3, 4]


# Nodes


def test_one_and_true_are_different_filters():
    field = Field("x")
    assert Comparison(field, "=", 1) != Comparison(field, "=", True)
    assert In(field, (0,)) != In(field, (False,))
    assert Contains(field, 1) != Contains(field, True)
    assert len({Comparison(field, "=", 1), Comparison(field, "=", True), Comparison(field, "=", 1)}) == 2


def test_parse_accepts_every_form():
    made = Comparison(Field("x"), "=", 1)
    assert parse("x = 1") == parse({"x": 1}) == parse(made) == made
    for wrong in (None, 5, len, ["x"]):
        with pytest.raises(ConfigError, match=f"of type {type(wrong).__name__}: expected a condition such as"):
            parse(wrong)


def test_empty_and_is_true_and_empty_or_is_false():
    assert holds(And(()))
    assert not holds(Or(()))
    assert not holds(Not(And(())))
    assert holds(Not(Or(())))
    assert holds({})


# Sizes


def test_many_conditions_work():
    metadata = {f"a{at}": at for at in range(1000)}
    assert holds(" AND ".join(f"a{at} = {at}" for at in range(1000)), metadata)
    assert not holds(" OR ".join(f"a{at} = -1" for at in range(1000)), metadata)
    assert holds({"$or": [{"ext": str(at)} for at in range(999)] + [{"ext": "md"}]}, file=FILE)


def test_long_lists_work():
    values = [*range(10_000), *(f"v{at}" for at in range(10_000)), 0.5, True]
    for value in (9_999, "v9999", 0.5, True):
        assert holds({"x": {"$in": values}}, {"x": value})
    assert not holds({"x": {"$in": values}}, {"x": "10000"})
    assert holds(f"ext IN ({', '.join(repr(str(at)) for at in range(10_000))}, 'md')", file=FILE)


def test_number_of_conditions_is_bounded():
    for like, most in ((Like(Field("x"), "1"), 1000), (Like(Field("x", nested=("y",) * 15), "1"), 62)):
        assert holds(Or((like,) * most), {"x": "1"}) == (most == 1000)
        with pytest.raises(ConfigError, match=r"more than 1,000 conditions.*list the values of one field in"):
            to_sql(Or((like,) * (most + 1)))


def test_equalities_of_one_field_are_one_condition():
    assert to_sql(parse_where("x = 1 OR y = 2 OR x = 'a'")) == to_sql(parse_where("y = 2 OR x IN (1, 'a')"))
    assert to_sql(parse_where("x != 1 AND x > 0 AND x != 2")) == to_sql(parse_where("x > 0 AND x NOT IN (1, 2)"))
    many = " OR ".join(f"x = {at}" for at in range(5000))
    assert holds(many, {"x": 4999})
    assert not holds(f"NOT ({many}) AND x != 5000", {"x": 5000})


def nested(leaf, levels):
    found = Or((leaf, leaf))
    for level in range(1, levels):
        found = (And if level % 2 else Or)((Exists(Field("x")), found))
    return found


@pytest.mark.parametrize(
    "leaf",
    [
        In(Field("path"), ("a", 1, True)),
        Contains(Field("headings"), "x"),
        Not(Contains(Field("a", nested=("b",) * 15), 1.5)),
        Glob(Field("source"), "a/*"),
    ],
)
def test_nesting_beyond_sqlites_limit_raises(leaf):
    assert select([chunk()], Not(nested(leaf, 28))) in ([], [0])
    with pytest.raises(ConfigError, match="more deeply than SQLite supports: expected at most about 30 levels"):
        to_sql(nested(leaf, 29))


def test_depth_is_bounded():
    deep = Exists(Field("x"))
    for _ in range(10_000):
        deep = Not(deep)
    with pytest.raises(ConfigError, match="or 100 levels of AND, OR and NOT: expected fewer"):
        to_sql(deep)
