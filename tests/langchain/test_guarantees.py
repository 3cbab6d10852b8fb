"""What docs/guarantees.md says is shown: by tests that there are, each of which says what it shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "guarantees.md"
COUNT = 54

_ITEM = re.compile(r"^(\d+)\. (.*(?:\n(?:   .*)?)*)", re.MULTILINE)
_REFERENCE = re.compile(r"^ *- `[\w/]+\.py::\w+`(?:,\s+`\w+`)*$", re.MULTILINE)


@dataclass(frozen=True)
class Item:
    """A numbered item of the page: whether it is kept, in part at least, and the tests that it names."""

    kept: bool
    tests: tuple[str, ...]


def items(page: str) -> dict[int, Item]:
    return {int(number): _item(text) for number, text in _ITEM.findall(page)}


def _item(text: str) -> Item:
    tests: list[str] = []
    for reference in _REFERENCE.findall(text):
        first, *others = re.findall(r"`(.*?)`", reference)
        file = first.partition("::")[0]
        tests += [first, *(f"{file}::{name}" for name in others)]
    return Item("**Not kept" not in text, tuple(tests))


def marked_in(source: str) -> dict[str, set[int]]:
    """Return the tests in a file, functions and classes, with the items that each names."""
    module = ast.parse(source)
    everywhere = {
        number
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for number in _named(node.value)
    }
    found: dict[str, set[int]] = {}
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            found[node.name] = everywhere | _marks(node)
        for test in [node, *(node.body if isinstance(node, ast.ClassDef) else [])]:
            if isinstance(test, (ast.FunctionDef, ast.AsyncFunctionDef)) and test.name.startswith("test"):
                found[test.name] = everywhere | _marks(test)
    return found


def _marks(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    return {number for decorator in node.decorator_list for number in _named(decorator)}


def _named(node: ast.expr) -> Iterator[int]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.guarantee":
            assert call.args, "a guarantee has a number"
            for number in call.args:
                yield ast.literal_eval(number)


@pytest.fixture(scope="module")
def page() -> dict[int, Item]:
    return items(PAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tests() -> dict[str, set[int]]:
    return {
        f"{file.relative_to(TESTS).as_posix()}::{name}": numbers
        for file in sorted(TESTS.rglob("test_*.py"))
        for name, numbers in marked_in(file.read_text(encoding="utf-8")).items()
    }


def test_the_page_has_all_items_in_order(page: dict[int, Item]) -> None:
    assert list(page) == list(range(1, COUNT + 1))


def test_what_is_kept_is_shown(page: dict[int, Item], tests: dict[str, set[int]]) -> None:
    shown = {number for numbers in tests.values() for number in numbers}
    assert [number for number, item in page.items() if item.kept and number not in shown] == []
    assert [number for number, item in page.items() if item.kept and not item.tests] == []


def test_tests_name_items_that_there_are(page: dict[int, Item], tests: dict[str, set[int]]) -> None:
    assert [(name, numbers - page.keys()) for name, numbers in tests.items() if not numbers <= page.keys()] == []


def test_tests_that_the_page_names_are_there_and_name_their_item(
    page: dict[int, Item], tests: dict[str, set[int]]
) -> None:
    for number, item in page.items():
        assert [name for name in item.tests if number not in tests.get(name, set())] == [], number


def test_every_line_of_tests_is_understood() -> None:
    text = PAGE.read_text(encoding="utf-8")
    understood = sum(len(item.tests) for item in items(text).values())
    assert understood == len(re.findall(r"`(?:[\w/]+\.py::)?(?:test_|Test)\w+`", text))


# This reading of page and tests


def test_items_are_read() -> None:
    page = (
        "1. First.\n   Goes on.\n   - `a/test_b.py::test_c`,\n     `test_d`\n   - `test_e.py::TestF`\n"
        "2. **Not kept:** no.\n\n## Next\n\n10. Tenth.\n    - `test_g.py::test_h`\n"
    )
    assert items(page) == {
        1: Item(True, ("a/test_b.py::test_c", "a/test_b.py::test_d", "test_e.py::TestF")),
        2: Item(False, ()),
        10: Item(True, ("test_g.py::test_h",)),
    }


def test_marks_are_read() -> None:
    source = (
        "pytestmark = [pytest.mark.slow, pytest.mark.guarantee(1)]\n"
        "@pytest.mark.guarantee(2, 3)\n@pytest.mark.slow\nasync def test_a(): ...\n"
        "@pytest.mark.guarantee(4)\nclass TestB:\n    @pytest.mark.guarantee(5)\n    def test_c(self): ...\n"
        "def test_d(): ...\ndef no_test(): ...\n"
    )
    assert marked_in(source) == {"test_a": {1, 2, 3}, "TestB": {1, 4}, "test_c": {1, 5}, "test_d": {1}}
