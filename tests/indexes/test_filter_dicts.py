"""Filters in LangChain's form: conversion of every operator, and messages for mistakes."""

import pytest

from ragembed.errors import ConfigError
from ragembed.indexes.filters import TEXT, And, Comparison, Contains, Exists, Field, Glob, Ids, In, Not, Or, Regex
from ragembed.indexes.filters.where import parse_filter_dict

X = Field("x")
ONE = Comparison(X, "=", 1)
KNOWN = (
    r"\$eq, \$ne, \$neq, \$gt, \$gte, \$lt, \$lte, \$in, \$nin, \$exists, \$contains, \$like, \$glob, \$regex, \$not"
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, And(())),
        ({"x": 1}, ONE),
        ({"x": {"$ne": 1}}, Not(ONE)),
        ({"x": {"$gte": 1.5}}, Comparison(X, ">=", 1.5)),
        ({"x": {"$in": [1, "a", True]}}, In(X, (1, "a", True))),
        ({"x": {"$in": [1, None]}}, Or((In(X, (1,)), Not(Exists(X))))),
        ({"x": {"$nin": [1]}}, Not(In(X, (1,)))),
        ({"x": {"$exists": True}}, Exists(X)),
        ({"x": {"$contains": "a"}}, Contains(X, "a")),
        ({"x": {"$glob": "a*"}}, Glob(X, "a*")),
        ({"x": {"$regex": "a+"}}, Regex(X, "a+")),
        ({"$regex": "a+"}, Regex(TEXT, "a+")),
        ({"x": {"$gte": 1, "$lt": 3}}, And((Comparison(X, ">=", 1), Comparison(X, "<", 3)))),
        ({"x": {"$not": {"$gte": 1, "$lt": 3}}}, Not(And((Comparison(X, ">=", 1), Comparison(X, "<", 3))))),
        ({"x": {"$gt": 0, "$not": {"$eq": 1}}}, And((Comparison(X, ">", 0), Not(ONE)))),
        ({"$or": [{"x": 1}, {"y": 2}]}, Or((ONE, Comparison(Field("y"), "=", 2)))),
        ({"$or": ({"x": 1},), "x": 1}, And((Or((ONE,)), ONE))),
        ({"$not": {"x": 1}}, Not(ONE)),
        ({"a": {"b": 1}}, Comparison(Field("a", metadata=True, nested=("b",)), "=", 1)),
        (
            {"a": {"b": {"c": {"$gt": 1}}, "d": None}},
            And(
                (
                    Comparison(Field("a", metadata=True, nested=("b", "c")), ">", 1),
                    Not(Exists(Field("a", metadata=True, nested=("d",)))),
                )
            ),
        ),
        ({"$id": ["i", "j"]}, Ids(("i", "j"))),
        ({"size": "XL"}, Comparison(Field("size"), "=", "XL")),
    ],
)
def test_dictionaries_are_converted(given, expected):
    assert parse_filter_dict(given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": {"$soundex": "a"}}, rf"unknown operator '\$soundex' for x: expected one of {KNOWN}"),
        ({"x": {"$not": {"$nor": 1}}}, r"unknown operator '\$nor' for x"),
        (
            {"$nor": []},
            r"unknown operator '\$nor' instead of a field: expected one of .*\$and, \$or, \$not, \$id, or the",
        ),
        ({"$id": 1}, r"\$id got 1: expected an id, a list of ids"),
        ({"$eq": 1}, r"unknown operator '\$eq' instead of a field.*as in {'year': {'\$gte': 2020}}"),
        ({"x": {}}, r"x has an empty dictionary: expected operators, as in {'\$gte': 2020}"),
        ({"x": {"$not": 1}}, r"\$not for x got 1: expected operators"),
        ({"x": ["a"]}, r"x is compared with the list \['a'\]: expected \$in .* or \$contains"),
        ({"x": {"$eq": ["a"]}}, r"\$eq for x got the list \['a'\]: expected a single value; \$in takes a list"),
        (
            {"x": {"$contains": ["a"]}},
            r"\$contains for x got the list .*join several \$contains with \$and or \$or",
        ),
        ({"x": {"$in": "abc"}}, r"\$in for x got 'abc': expected a list of values"),
        ({"x": {"$in": [[1]]}}, r"x is compared with \[1\], of type list: expected a string, a number, true or false"),
        ({"x": {"$exists": 1}}, r"\$exists for x got 1: expected True or False"),
        ({"x": {"$gt": None}}, r"x is compared with null, which has no order: .*IS NULL or \$exists"),
        ({"x": {"$regex": "(a"}}, r"the regular expression '\(a' is invalid: missing \)"),
        ({5: 1}, "a field is named 5: expected a string, not int"),
        ({"$and": {"x": 1}}, r"\$and got {'x': 1}: expected a list of at least one filter"),
        ({"$or": ["x"]}, "the filter is 'x', of type str: expected a dictionary such as"),
        (lambda document: True, "of type function: expected a dictionary such as"),
    ],
)
def test_invalid_dictionary_raises(given, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_filter_dict(given)
    assert "\n" not in str(caught.value)


def test_long_values_are_cut_in_messages():
    with pytest.raises(ConfigError) as caught:
        parse_filter_dict({"x": ["a" * 100] * 100})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: {"$not": inner},
        lambda inner: {"$and": [inner]},
        lambda inner: {"x": {"$not": inner.get("x", inner)}},
    ],
)
def test_deep_nesting_raises(wrap):
    given = {"x": {"$eq": 1}}
    for _ in range(5_000):
        given = wrap(given)
    with pytest.raises(ConfigError, match=r"has more than 100 levels of .*: expected fewer"):
        parse_filter_dict(given)
