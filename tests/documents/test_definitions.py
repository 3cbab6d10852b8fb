"""Source code is split at functions and classes in all languages of semble-grammars."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.documents.chunking import Chunker, ChunkingConfig
from ragembed.documents.model import Chunk
from ragembed.documents.readers import ReadOptions, definitions, read

pytest.importorskip("semble_grammars")

EXAMPLES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "a.ts": (
        """\
/** Adds. */
export async function add<T>(a: T): Promise<T> {
  return a;
}

export default class Pair extends Base {
  left: number;

  /** Left. */
  @memo()
  public get(): number {
    return 1;
  }
}

const twice = (n: number) => {
  return n;
};
""",
        [
            ("/** Adds. */", "export async function add<T>(a: T): Promise<T>"),
            ("export default class Pair extends Base {", "class Pair"),
            ("/** Left. */", "class Pair > public get(): number"),
            ("const twice = (n: number) => {", "const twice = (n: number)"),
        ],
    ),
    "a.js": (
        """\
(function () {
  // Inner.
  function inner(a) {
    return a;
  }
})();

exports.run = function (a) {
  return a;
};

var api = {
  get: function (x) {
    return x;
  },
};
""",
        [
            ("(function () {", ""),
            ("// Inner.", "function inner(a)"),
            ("exports.run = function (a) {", "exports.run = function (a)"),
            ("var api = {", ""),
            ("get: function (x) {", "get: function (x)"),
        ],
    ),
    "a.java": (
        """\
package a;

/** A list. */
@Deprecated
public final class L<T>
    implements I {
    int n; // count
    /** Maps. */
    @Override
    public <R> R map(F<R> f) throws E {
        return null;
    }
}
""",
        [
            ("package a;", ""),
            ("/** A list. */", "class L"),
            ("/** Maps. */", "class L > public <R> R map(F<R> f) throws E"),
        ],
    ),
    "a.c": (
        """\
/* Adds. */
static int
add(int a)
{
    return a;
}

struct point {
    int x;
};

struct point p;

#define MAX(a) \\
    (a)
""",
        [
            ("/* Adds. */", "static int add(int a)"),
            ("struct point {", "struct point"),
            ("struct point p;", ""),
            ("#define MAX(a) \\", "#define MAX(a)"),
        ],
    ),
    "a.cpp": (
        """\
namespace ns {

// A box.
template <typename T>
class Box : public Base {
  // Gets.
  int get() const {
    return a_;
  }
};

}  // namespace ns
""",
        [
            ("namespace ns {", "namespace ns"),
            ("// A box.", "namespace ns > class Box"),
            ("// Gets.", "namespace ns > class Box > int get() const"),
            ("}  // namespace ns", "namespace ns"),
        ],
    ),
    "a.cs": (
        """\
namespace N {
    /// <summary>Runs.</summary>
    [Serializable]
    public class R : I {
        public async Task<int> Run(string s) {
            return 1;
        }
    }
}
""",
        [
            ("namespace N {", "namespace N"),
            ("/// <summary>Runs.</summary>", "namespace N > class R"),
            ("public class R : I {", "namespace N > class R > public async Task<int> Run(string s)"),
        ],
    ),
    "a.go": (
        """\
package a

// Router routes.
type Router struct {
\tx int
}

// Get gets.
func (r *Router) Get(n string) *Route {
\treturn nil
}
""",
        [
            ("package a", ""),
            ("// Router routes.", "type Router struct"),
            ("// Get gets.", "func (r *Router) Get(n string) *Route"),
        ],
    ),
    "a.rs": (
        """\
/// A point.
#[derive(Debug)]
pub struct P {
    x: i32,
}

impl fmt::Display for P {
    /// Writes.
    #[inline]
    fn fmt(&self) -> R {
        f
    }
}
""",
        [
            ("/// A point.", "struct P"),
            ("impl fmt::Display for P {", "impl fmt::Display for P"),
            ("/// Writes.", "impl fmt::Display for P > fn fmt(&self) -> R"),
        ],
    ),
    "a.rb": (
        """\
module M
  # A dog.
  class Dog < Animal
    # Barks.
    def bark(loud: true)
      1
    end
  end
end
""",
        [
            ("module M", "module M"),
            ("# A dog.", "module M > class Dog"),
            ("# Barks.", "module M > class Dog > def bark(loud: true)"),
        ],
    ),
    "a.php": (
        """\
<?php
/** A user. */
final class User extends B
{
    /** Gets. */
    public function get(int $a): string
    {
        return 1;
    }
}
""",
        [
            ("<?php", ""),
            ("/** A user. */", "class User"),
            ("/** Gets. */", "class User > public function get(int $a): string"),
        ],
    ),
    "a.kt": (
        """\
/** Data. */
data class P(val x: Int) : Q() {
    /** Sums. */
    fun sum(a: Int): Int {
        return a
    }
}
""",
        [
            ("/** Data. */", "class P"),
            ("/** Sums. */", "class P > fun sum(a: Int): Int"),
        ],
    ),
    "a.swift": (
        """\
/// A view.
@objc
public class V: UIView {
    /// Inits.
    init(x: Int) {
        self.x = x
    }
}
""",
        [
            ("/// A view.", "class V"),
            ("/// Inits.", "class V > init(x: Int)"),
        ],
    ),
    "a.scala": (
        """\
/** Foo. */
case class Foo(x: Int) extends Bar {
  /** Doc. */
  def go[A](y: A): Int = {
    1
  }
}
""",
        [
            ("/** Foo. */", "class Foo"),
            ("/** Doc. */", "class Foo > def go[A](y: A): Int"),
        ],
    ),
    "a.sh": (
        """\
#!/bin/sh

# Prints help.
usage() {
  echo hi
}

usage
""",
        [
            ("#!/bin/sh", ""),
            ("# Prints help.", "usage()"),
            ("usage", ""),
        ],
    ),
    "a.lua": (
        """\
-- Adds.
function M.add(a, b)
  return a
end

M.sub = function(a)
  return a
end

return M
""",
        [
            ("-- Adds.", "function M.add(a, b)"),
            ("M.sub = function(a)", "M.sub = function(a)"),
            ("return M", ""),
        ],
    ),
}


def outline(name: str, text: str) -> list[tuple[str, str]]:
    """Return the first line of each block, and its headings."""
    (document,) = read(name, text.encode())
    position = 0
    for block in document.blocks:
        assert not document.text[position : block.start].strip()
        position = block.end
    assert not document.text[position:].strip()
    starts = [document.text[block.start : block.end].strip().split("\n")[0] for block in document.blocks]
    return [(start, " > ".join(block.headings)) for start, block in zip(starts, document.blocks, strict=True)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_definitions_have_their_comments_and_signatures(name: str) -> None:
    text, expected = EXAMPLES[name]
    assert outline(name, text) == expected


def test_every_language_has_a_grammar() -> None:
    from semble_grammars import available_languages

    assert {language.grammar for language in definitions.LANGUAGES.values()} <= set(available_languages())


def test_a_file_with_an_error_keeps_the_definitions_that_parse() -> None:
    text = "int f(int a) {\n    return 1;\n}\n\nint ( = ;\n\nint g(int b) {\n    return 2;\n}\n"
    assert [heading for _, heading in outline("a.c", text) if heading] == ["int f(int a)", "int g(int b)"]


@pytest.mark.parametrize(
    "text",
    [
        ")]}>" * 40 + "\n\nint f() {\n}\n",
        "a<\n" * 20_000,
        "int f() {\n}\n\n" + "x\n" * definitions.LARGEST_SOURCE,
    ],
    ids=["mostly errors", "ambiguous", "large"],
)
def test_a_file_that_cannot_be_parsed_is_split_by_its_layout(text: str) -> None:
    assert definitions.find(text, ".cpp", pytest.fail) is None
    assert {heading for _, heading in outline("a.cpp", text)} == {""}


def test_a_grammar_that_cannot_be_loaded_gives_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from semble_grammars.loader import get_language

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SEMBLE_GRAMMARS_CACHE_DIR", str(tmp_path / "file" / "below"))
    get_language.cache_clear()
    warnings: list[str] = []
    (document,) = read("a.go", b"package a\n\nfunc f() {\n}\n", ReadOptions(on_warning=warnings.append))
    assert [block.headings for block in document.blocks] == [(), ()]
    assert len(warnings) == 1
    assert "the grammar 'go' cannot be loaded" in warnings[0]


@pytest.mark.parametrize("suffix", [".js", ".cpp", ".rb"])
@pytest.mark.parametrize("opening", ["(\n", "{\n", "class A {\n", "function f() {\n", "[1,\n"])
def test_deep_nesting_needs_no_recursion(suffix: str, opening: str) -> None:
    assert outline(f"a{suffix}", opening * 20_000)


@given(
    st.sampled_from(sorted(definitions.LANGUAGES)),
    st.text(st.sampled_from("\n\n (){}[]\"'/*#<>=;:,@ab class def end fn")),
)
def test_every_text_is_covered(suffix: str, text: str) -> None:
    if text.strip():
        assert outline(f"a{suffix}", text)  # which checks that only white space lies between blocks


def chunks(name: str, text: str, limit: int) -> list[Chunk]:
    def offsets(texts: list[str]) -> list[list[tuple[int, int]]]:
        return [[match.span() for match in re.finditer(r"\w+|[^\w\s]", text)] for text in texts]

    (document,) = read(name, text.encode())
    return Chunker(ChunkingConfig(limit), offsets).split(document)


FUNCTION = "  def f{0}(x)\n" + "    x = call(self, 1)\n" * 6 + "  end\n"


def test_only_definitions_over_the_limit_are_cut() -> None:
    text = "require 'a'\n\n\n" + "".join(
        f"class C{number}\n{FUNCTION.format(1)}\n{FUNCTION.format(2)}end\n\n" for number in range(5)
    )
    whole = chunks("a.rb", text, 200)
    assert [chunk.text.count("class ") for chunk in whole] == [1] * 5
    assert all(chunk.text.count("def ") == 2 for chunk in whole)
    parts = chunks("a.rb", text, 90)
    assert all(chunk.text.count("def ") == 1 and chunk.text.count("call") == 6 for chunk in parts)
    assert max(chunk.tokens for chunk in parts) <= 90


def test_the_parts_of_a_long_function_have_its_signature_if_there_is_room() -> None:
    text = "class C\n  def f(x)\n" + "    x = call(self, 1)\n" * 40 + "  end\nend\n"
    first, *others, last = chunks("a.rb", text, 100)
    assert "def f(x)" in first.text
    assert last.headings == ("class C", "def f(x)")
    assert all(last.headings[: len(chunk.headings)] == chunk.headings and chunk.headings for chunk in others)


def test_a_node_without_named_parts_is_no_error() -> None:
    text = "help() {\n  cat << 'END'\nplain text\nEND\n}\n\ncat << END\n$x text\nEND\n"
    [document] = read("a.sh", text.encode())
    assert "plain text" in document.text
