"""Find the functions and classes of a source file with tree-sitter, with their decorators, comments and signatures.

One walk serves all languages; ``LANGUAGES`` names the nodes that matter in each. Python is not among them: with its own
parser, hybrid search found 75 % of the functions in a benchmark within 2,000 tokens, and 69 % with this module.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ragembed import extras
from ragembed.documents.readers.structure import one_line

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree

LARGEST_SOURCE = 500_000
"""Maximum size of a parsed file in bytes. Larger files are generated as a rule, and their trees take much memory."""
STEPS_PER_KILOBYTE = 20
"""Limit of the parser's work, in hundreds of steps. Real code takes 2 to 15; code made to be ambiguous takes 100."""
PARSER_SECONDS = 3.0
"""Limit of the processor time of the parser. A few grammars have scanners that read the rest of the file in a step."""
DEEPEST = 8
"""Maximum depth of nested headings. Definitions below that belong to their parent."""
LARGE_FUNCTION = 2_000
"""A function is split at the definitions inside it only if it has more bytes than this, which is about 500 tokens."""
LONGEST_HEADING = 100


@dataclass
class Definition:
    """A function, class or module in lines ``first`` to ``stop`` (0-based, ``stop`` exclusive) of a file."""

    first: int
    stop: int
    heading: str
    inner: list[Definition] = field(default_factory=list)


@dataclass(frozen=True)
class Language:
    """The names that the grammar of a language gives to its definitions.

    ``functions`` stay in one piece unless they are large. ``containers`` (classes, modules) are split at the
    definitions inside them. ``values`` are nodes such as assignments and the field with their value: they are
    definitions if the value is a function or class. ``wrappers`` are nodes around a definition that belong to it.
    """

    grammar: str
    functions: frozenset[str]
    containers: frozenset[str]
    wrappers: frozenset[str]
    values: Mapping[str, str]


_JS_FUNCTIONS = "function_declaration generator_function_declaration method_definition"
_JS_WRAPPERS = "export_statement lexical_declaration variable_declaration expression_statement ambient_declaration"
_JS_VALUES = dict.fromkeys(("variable_declarator", "pair", "field_definition", "public_field_definition"), "value") | {
    "assignment_expression": "right"
}
_TS_FUNCTIONS = f"{_JS_FUNCTIONS} function_signature type_alias_declaration"
_TS_CLASSES = (
    "class_declaration abstract_class_declaration class interface_declaration enum_declaration internal_module module"
)
_C_FUNCTIONS, _C_TYPES = "function_definition preproc_function_def", "struct_specifier union_specifier enum_specifier"
_VALUES = {
    **dict.fromkeys(("javascript", "typescript", "tsx"), _JS_VALUES),
    "lua": {"assignment_statement": "", "field": "value"},
}
_GRAMMARS = (
    ("javascript", ".js .mjs .cjs .jsx", _JS_FUNCTIONS, "class_declaration class", _JS_WRAPPERS),
    ("typescript", ".ts", _TS_FUNCTIONS, _TS_CLASSES, _JS_WRAPPERS),
    ("tsx", ".tsx", _TS_FUNCTIONS, _TS_CLASSES, _JS_WRAPPERS),
    ("java", ".java", "method_declaration constructor_declaration compact_constructor_declaration",
     "class_declaration interface_declaration enum_declaration record_declaration annotation_type_declaration", ""),
    ("c", ".c", _C_FUNCTIONS, _C_TYPES, "type_definition declaration"),
    ("cpp", ".h .cc .cpp .cxx .hpp .hh", _C_FUNCTIONS,
     f"{_C_TYPES} class_specifier namespace_definition concept_definition",
     "template_declaration type_definition declaration"),
    ("csharp", ".cs", ("method_declaration constructor_declaration destructor_declaration operator_declaration "
     "property_declaration indexer_declaration local_function_statement delegate_declaration"),
     ("namespace_declaration class_declaration struct_declaration interface_declaration enum_declaration "
     "record_declaration"), ""),
    ("go", ".go", "function_declaration method_declaration type_spec", "", "type_declaration"),
    ("rust", ".rs", "function_item macro_definition",
     "struct_item enum_item union_item trait_item impl_item mod_item foreign_mod_item", ""),
    ("ruby", ".rb", "method singleton_method", "class module singleton_class", ""),
    ("php", ".php", "function_definition method_declaration",
     "class_declaration interface_declaration trait_declaration enum_declaration namespace_definition", ""),
    ("kotlin", ".kt .kts", "function_declaration secondary_constructor",
     "class_declaration object_declaration companion_object", ""),
    ("swift", ".swift", ("function_declaration init_declaration deinit_declaration subscript_declaration "
     "protocol_function_declaration"), "class_declaration protocol_declaration", ""),
    ("scala", ".scala", "function_definition function_declaration",
     "class_definition object_definition trait_definition enum_definition extension_definition given_definition", ""),
    ("bash", ".sh .bash .zsh", "function_definition", "", ""),
    ("lua", ".lua", "function_declaration", "", "variable_declaration"),
)  # fmt: skip
"""For each grammar: its suffixes, and the names of functions, containers and wrappers."""
LANGUAGES = {
    suffix: Language(
        grammar,
        frozenset(functions.split()),
        frozenset(containers.split()),
        frozenset(wrappers.split()),
        _VALUES.get(grammar, {}),
    )
    for grammar, suffixes, functions, containers, wrappers in _GRAMMARS
    for suffix in suffixes.split()
}

FUNCTION_VALUES = frozenset(
    ("arrow_function", "function_expression", "generator_function", "class", "function_definition")
)
ANNOTATIONS = frozenset(
    ("annotation", "marker_annotation", "attribute", "attribute_list", "attribute_item", "decorator")
)
BODY = re.compile(
    r"(^|_)(body|block|declaration_list|field_declaration_list|enumerator_list)$|^body|^compound_statement$"
)
GENERICS = re.compile(r"<[^<>]*>")
CONTAINER_NAME = re.compile(
    r"\b(class|interface|enum|struct|union|record|trait|impl|mod|module|namespace|object|extension|protocol|actor)\b"
    r"((?! (extends|implements|where|with|permits)\b)([^({:=<]|::))*"
)
SIGNATURE_END = re.compile(r"\s*(=>|[{:=\\])?\s*$")


def is_available(suffix: str) -> bool:
    """Return whether files with ``suffix`` can be parsed."""
    return suffix in LANGUAGES and extras.is_installed("semble_grammars")


def find(text: str, suffix: str, warn: Callable[[str], None]) -> list[Definition] | None:
    """Return the outermost definitions of ``text`` in order, or None if it or its grammar cannot be read."""
    language = LANGUAGES[suffix]
    data = text.encode("utf-8", "replace")
    if len(data) > LARGEST_SOURCE:
        return None
    parser = _parser(language.grammar, warn)
    tree = _parse(data, parser) if parser is not None else None
    if tree is None:
        return None
    root = tree.root_node
    broken = sum(node.end_byte - node.start_byte for node in root.children if node.type == "ERROR")
    if root.type == "ERROR" or 2 * broken > len(data):
        return None
    return _DefinitionWalk(data, language).definitions(root)


def _parser(grammar: str, warn: Callable[[str], None]) -> Parser | None:
    from semble_grammars import GrammarLoadError, UnsupportedPlatformError, get_parser

    try:
        parser: Parser = get_parser(grammar)
    except (GrammarLoadError, UnsupportedPlatformError) as error:
        warn(
            f"the grammar {grammar!r} cannot be loaded ({error}), so the file is split without it: check that "
            "~/.cache can be written, or set SEMBLE_GRAMMARS_CACHE_DIR to a folder that can"
        )
        return None
    return parser


def _parse(data: bytes, parser: Parser) -> Tree | None:
    """Return the syntax tree of ``data``, or None if parsing takes too much work."""
    view = memoryview(data)
    steps = 0
    most = 100 + STEPS_PER_KILOBYTE * len(data) // 1000
    deadline = time.thread_time() + PARSER_SECONDS

    def stop(_offset: int, _has_error: bool) -> bool:
        nonlocal steps
        steps += 1
        return steps > most or time.thread_time() > deadline

    try:
        return parser.parse(lambda offset, _point: view[offset:], progress_callback=stop)
    except ValueError:
        # The parser has no other error for a parse that its callback stopped.
        return None


class _DefinitionWalk:
    """Collects the definitions of one tree, without recursion, because trees can be deep."""

    def __init__(self, data: bytes, language: Language) -> None:
        self.data = data
        self.language = language

    def definitions(self, root: Node) -> list[Definition]:
        outermost: list[Definition] = []
        found = [outermost]
        pending: list[tuple[Node, int | None, list[Definition], int]] = [(root, None, outermost, 0)]
        while pending:
            parent, line_above, into, depth = pending.pop()
            for node, first in _with_comments(parent):
                wrapped = line_above is not None
                begin = first if line_above is None else line_above
                if self._is_definition(node):
                    definition = Definition(begin, _stop(node), self._signature(node, wrapped))
                    into.append(definition)
                    line_above = None
                    is_large = node.type in self.language.containers or node.end_byte - node.start_byte > LARGE_FUNCTION
                    if depth < DEEPEST and is_large:
                        found.append(definition.inner)
                        pending.append((node, None, definition.inner, depth + 1))
                elif node.end_point.row > node.start_point.row:
                    pending.append((node, begin if self._begins_a_definition(node) else None, into, depth))
                    line_above = None
        for definitions in found:
            definitions.sort(key=lambda definition: (definition.first, -definition.stop))
        return outermost

    def _begins_a_definition(self, node: Node) -> bool:
        """Return whether comments above ``node`` are about the first definition inside it."""
        if node.type in self.language.wrappers:
            return True
        first = _first_named(node) if BODY.search(node.type) else None
        return first is not None and self._is_definition(first)

    def _is_definition(self, node: Node) -> bool:
        kind, language = node.type, self.language
        if kind in language.values:
            return self._value(node) is not None
        if kind in language.functions:
            return True
        # C uses the same node for a struct and for a mention of it. A mention has one line.
        return kind in language.containers and node.end_point.row > node.start_point.row

    def _value(self, node: Node) -> Node | None:
        """Return the function or class that an assignment assigns."""
        name = self.language.values.get(node.type)
        value = node.child_by_field_name(name) if name else next(reversed(node.named_children), None)
        if value is not None and value.type == "expression_list":
            value = _first_named(value)
        return value if value is not None and value.type in FUNCTION_VALUES else None

    def _signature(self, node: Node, is_wrapped: bool) -> str:
        start = next((c.start_byte for c in _parts(node) if c.type not in ANNOTATIONS), node.start_byte)
        # A wrapper that begins on the same line has words such as "type" or "export default".
        if is_wrapped and node.parent is not None and node.parent.start_point.row == node.start_point.row:
            start = node.parent.start_byte
        whole = self._value(node) or node
        body = whole.child_by_field_name("body") or next((c for c in whole.children if BODY.search(c.type)), None)
        after = [child.start_byte for child in node.children if "comment" in child.type and child.start_byte > start]
        if body is not None and body.start_byte > start:
            after.append(body.start_byte)
        if not after:
            line_end = self.data.find(b"\n", start)
            after = [node.end_byte if line_end < 0 else min(line_end, node.end_byte)]
        end = min(after)
        text = one_line(self.data[start : min(end, start + 10 * LONGEST_HEADING)].decode("utf-8", "ignore"))
        text = SIGNATURE_END.sub("", text, count=1)
        if node.type in self.language.containers:
            text = _name(text)
        return text if len(text) <= LONGEST_HEADING else text[: LONGEST_HEADING - 1].rstrip() + "…"


def _name(signature: str) -> str:
    """Return the kind and name of a class or module: every chunk of it has this heading, so it should be short."""
    text, found = signature, 1
    while found:
        text, found = GENERICS.subn("", text)
    named = CONTAINER_NAME.search(text)
    return named[0].strip() if named else signature


def _parts(node: Node) -> Iterator[Node]:
    """Yield the children of a definition, with the modifiers (``public static``) one by one."""
    for child in node.children:
        if child.type == "modifiers":
            yield from child.children
        elif "comment" not in child.type:
            yield child


def _first_named(node: Node) -> Node | None:
    """Return the first named child of ``node``, or None if it has none, such as the body of a heredoc."""
    return node.named_child(0) if node.named_child_count else None


def _with_comments(parent: Node) -> Iterator[tuple[Node, int]]:
    """Yield each child of ``parent`` with the first line of the comments and attributes directly above it."""
    above: int | None = None
    expected = last_code = -1
    for node in parent.children:
        first = node.start_point.row
        if "comment" in node.type or node.type in ANNOTATIONS:
            if first == last_code:
                continue
            above = above if above is not None and first <= expected else first
            expected = _stop(node)
            continue
        yield node, above if above is not None and first <= expected else first
        above = None
        last_code = _stop(node) - 1


def _stop(node: Node) -> int:
    """Return the line after the last line of ``node``. Some nodes include the line break at their end."""
    end = node.end_point
    return end.row if end.column == 0 and end.row > node.start_point.row else end.row + 1
