from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from ragembed.documents.ignore import IgnoreScope, _without_backtracking, command_line_rules, scope_above
from ragembed.errors import ConfigError


def scope_of(root: Path, *exclude: str) -> IgnoreScope:
    return scope_above(root, exclude).enter(root, "", [path.name for path in root.iterdir()])


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def decision(scope: IgnoreScope, relative: str, is_dir: bool = False) -> str | None:
    """Return the deciding pattern. A leading "!" means that the path is re-included."""
    rule = scope.deciding(relative, is_dir)
    return None if rule is None else rule.pattern


def test_rule_names_file_line_and_pattern(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "# comment\n\n*.tmp\r\n*.log   \n!keep.log\n")
    scope = scope_of(tmp_path)
    ignore_file = (tmp_path / ".gitignore").as_posix()
    assert str(scope.deciding("a/b.log", False)) == f"{ignore_file}:4: *.log"
    assert str(scope.deciding("x.tmp", False)) == f"{ignore_file}:3: *.tmp"
    kept = scope.deciding("keep.log", False)
    assert kept is not None
    assert (kept.line, kept.negated) == (5, True)
    assert scope.deciding("comment", False) is None


def test_byte_order_mark_and_non_unicode_names(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"\xef\xbb\xbffirst\n\xff.txt\n")
    scope = scope_of(tmp_path)
    assert decision(scope, "first") == "first"
    assert decision(scope, "\udcff.txt") == "\udcff.txt"


@pytest.mark.parametrize(
    ("pattern", "ignored", "not_ignored"),
    [
        ("docs/**", ["docs/a", "docs/a/b"], ["docs"]),
        ("f?o[0-9]", ["foo1", "a/fxo2"], ["fo1", "foox", "f/o1"]),
        ("x[[:digit:]]", ["x7"], ["xd"]),
        (r"\#hash", ["#hash"], ["hash"]),
        (r"\!bang", ["!bang"], ["bang"]),
        ("trail\\ ", ["trail "], ["trail"]),
        ("[[a]", ["[", "a"], ["b"]),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, ignored: list[str], not_ignored: list[str]) -> None:
    write(tmp_path / ".gitignore", pattern + "\n")
    scope = scope_of(tmp_path)
    assert [path for path in ignored if decision(scope, path) is None] == []
    assert [path for path in not_ignored if decision(scope, path) is not None] == []


@pytest.mark.parametrize("pattern", ["[z-a]", "\\", "/", "!", "   "])
def test_invalid_patterns_match_nothing(tmp_path: Path, pattern: str) -> None:
    write(tmp_path / ".gitignore", f"{pattern}\n*.log\n")
    scope = scope_of(tmp_path)
    assert [decision(scope, name) for name in ("a", "\\", " ", "a.log")] == [None] * 3 + ["*.log"]


def test_negated_names_may_start_with_syntax_characters(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "*\n!!bang\n!#hash\n")
    scope = scope_of(tmp_path)
    assert decision(scope, "!bang") == "!!bang"
    assert decision(scope, "#hash") == "!#hash"
    assert decision(scope, "bang") == "*"


def test_precedence_of_gitignore_ragembedignore_and_exclude(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "generated/\n*.log\n")
    write(tmp_path / ".ragembedignore", "!generated/\n!b.log\n")
    write(tmp_path / "a/.gitignore", "b.log\n")
    scope = scope_of(tmp_path, "c.log", "!d.log")
    inner = scope.enter(tmp_path / "a", "a", [".gitignore"])
    assert decision(scope, "generated", is_dir=True) == "!generated/"
    assert decision(inner, "a/b.log") == "!b.log"
    assert str(inner.deciding("a/c.log", False)) == "--exclude c.log"
    assert decision(inner, "a/d.log") == "!d.log"


def test_rules_of_the_enclosing_repository_apply(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "outside-the-repository\n")
    repository = tmp_path / "repository"
    write(repository / ".git/info/exclude", "private\n/root/*.a\n")
    write(repository / ".gitignore", "/root/*.b\n*.c\n")
    write(repository / ".ragembedignore", "*.r\n")
    write(repository / "root/.gitignore", "!kept.c\n")
    scope = scope_of(repository / "root")
    assert decision(scope, "outside-the-repository") is None
    assert decision(scope, "private") == "private"
    assert [decision(scope, name) for name in ("x.a", "x.b", "x.c", "x.r")] == ["/root/*.a", "/root/*.b", "*.c", "*.r"]
    assert decision(scope, "below/x.b") is None
    assert decision(scope, "kept.c") == "!kept.c"


def test_nested_repository_uses_its_own_rules(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "*.log\n")
    write(tmp_path / "sub/.git/info/exclude", "*.bak\n")
    inner = scope_of(tmp_path).enter(tmp_path / "sub", "sub", [".git"])
    assert decision(inner, "sub/a.log") is None
    assert decision(inner, "sub/a.bak") == "*.bak"


def test_work_tree_uses_shared_exclude_file(tmp_path: Path) -> None:
    write(tmp_path / "main/.git/info/exclude", "secret\n")
    write(tmp_path / "main/.git/worktrees/w/commondir", "../..\n")
    write(tmp_path / "w/.git", f"gitdir: {tmp_path / 'main/.git/worktrees/w'}\n")
    assert decision(scope_of(tmp_path / "w"), "secret") == "secret"


def test_folder_named_like_an_ignore_file_has_no_rules(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").mkdir()
    assert scope_of(tmp_path).git[0].rules == ()


def test_brackets_in_a_pattern_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rules = command_line_rules("--exclude", ["*[[a]*[[b]*c"])
    assert rules.deciding("xaxbxc", False) is not None


def test_invalid_glob_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"--exclude '\[z-a\]' is not a pattern"):
        command_line_rules("--exclude", ["*.log", "[z-a]"])


_PATTERNS = st.text("aab*?/", min_size=1, max_size=12) | st.lists(
    st.sampled_from(["**", "a", "b", "*a", "a*b*a", "?b", "[!a]*b*", "a*"]), min_size=1, max_size=5
).map("/".join)
_PATHS = st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=5).map("/".join)


@given(pattern=_PATTERNS, paths=st.lists(_PATHS, min_size=1, max_size=10))
def test_patterns_match_as_in_pathspec(pattern: str, paths: list[str]) -> None:
    expected = GitIgnoreSpecPattern(pattern).regex
    assume(expected is not None)
    found = re.compile(_without_backtracking(expected.pattern))
    for path in paths:
        wanted, match = expected.search(path), found.search(path)
        assert (wanted is None) == (match is None)
        assert match is None or match.groupdict().get("ps_d") == wanted.groupdict().get("ps_d")


@pytest.mark.parametrize("pattern", ["a*" * 20 + "b", "**/" + "a/**/" * 20 + "b", "/".join(["a*" * 10 + "b"] * 3)])
def test_many_wildcards_need_no_exponential_time(pattern: str) -> None:
    rules = command_line_rules("--exclude", [pattern])
    assert rules.deciding("/".join(["a" * 60, *"a" * 60]), False) is None
