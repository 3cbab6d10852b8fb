"""Messages and documentation follow the project's rules for words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragembed import errors

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(path for folder in ("ragembed", "indexes", "cli") for path in (ROOT / folder).rglob("*.py"))
TEXTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
USAGE_ERRORS = {"UsageError", "BadParameter"}
PHRASES = re.compile(
    r"\b(anew|in the place of|of which|is told|are told|what is to be|of no use|that there is not|there is not any|"
    r"ask a store|of another kind|as far as to)\b",
    re.IGNORECASE,
)


def raised(path: Path) -> Iterator[tuple[int, str, str | None]]:
    """Yield line, class and message of each error that a module raises; ``{}`` stands for a value."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            name = ast.unparse(node.exc.func).rpartition(".")[2]
            if name in ERRORS | USAGE_ERRORS:
                yield node.lineno, name, template(node.exc.args[0]) if node.exc.args else ""


def template(node: ast.expr) -> str | None:
    """Return a text with ``{}`` for its values, None if it is computed elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) or "" for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return "{}"
    if isinstance(node, ast.BinOp):
        left, right = template(node.left), template(node.right)
        return None if left is None or right is None else left + right
    return None


@pytest.fixture(scope="module")
def messages() -> list[tuple[str, str, str | None]]:
    """Place, class and message of each error that the sources raise."""
    return [(f"{path.relative_to(ROOT)}:{line}", name, text) for path in SOURCES for line, name, text in raised(path)]


def test_every_error_class_is_raised_or_is_a_base(messages) -> None:
    bases = {base.__name__ for name in ERRORS for base in vars(errors)[name].__mro__[1:]}
    used = {name for _, name, _ in messages}
    for path in SOURCES:  # such as errors that a function returns
        used |= set(re.findall(r"(?<!class )\b(\w+)\(", path.read_text(encoding="utf-8"))) & ERRORS
    assert ERRORS - bases <= used | {"IndexWarning"}


def test_messages_say_what_happened_and_what_to_do(messages) -> None:
    """``what happened, with the value: what was expected; what to do``, without a capital and a full stop."""
    assert len(messages) > 500
    wrong = [f"{place}: {text}" for place, name, text in messages if text is not None and not is_good(name, text)]
    assert not wrong


def is_good(name: str, text: str) -> bool:
    if name == "MissingExtraError":  # its class makes the message from three parts
        return True
    start = re.match(r"[^A-Z]|[A-Z][\w.-]*[A-Z]|(?:FAISS|NumPy|Ray|PyTorch|Hugging|Python)\b", text)
    parts = name == "DocumentError" or re.search(r"[:;]|\{\}$", text)  # a reason for a skipped file is short
    return bool(start and parts) and not text.endswith(".")


def test_no_file_has_odd_phrases() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in (*TEXTS, *SOURCES)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if PHRASES.search(line)
    ]
    assert not found
