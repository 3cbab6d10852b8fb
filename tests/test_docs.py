"""The documentation is true: generated pages are fresh, examples run, links lead somewhere."""

import ast
import inspect
import re
import runpy
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from ragembed.indexes.indexing import fitting
from ragembed.version import __version__

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
SOME_PAGES = ("concepts.md", "filters.md", "reliability.md")  # what docs/ holds where examples run: few are fast
ERRORS = "ragembed.errors"  # documented by its tree, which tests/test_architecture.py compares with the classes
BEGINNING = 1500  # characters of each that are there: to embed whole pages takes minutes


def blocks(page, language):
    return [block for _, block in fenced(page, language)]


def fenced(page, languages):
    """Return the fenced blocks of ``languages`` (``a|b``), each with its language."""
    return re.findall(rf"^```({languages})\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands(block):
    """Return what follows ``ragembed`` in each command of a block; a command that goes on in the next line is one."""
    return re.findall(r"^(?:\$ )?ragembed (.*)$", re.sub(r"\\\n\s*", "", block), re.MULTILINE)


def program(page):
    """Return a page's ``python`` blocks, and the commands of its ``console`` blocks, as one Python program."""
    parts = ["from ragembed.cli import main as ragembed_command"]
    for language, block in fenced(page, "python|console"):
        if language == "python":
            parts.append(block)
        else:
            words = [shlex.split(command) for command in commands(block)]
            parts += [f"assert not ragembed_command({each!r}, standalone_mode=False)" for each in words]
    return "\n".join(parts)


def test_the_generated_pages_are_fresh():
    for name, page in runpy.run_path(str(ROOT / "docs" / "generate.py"))["PAGES"].items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(), f"docs/{name} is stale: run make docs"


@pytest.mark.parametrize("package", sorted(set(re.findall(r"^## (ragembed[\w.]*)$", API, re.MULTILINE)) - {ERRORS}))
def test_the_public_names_are_documented_and_no_others_are_visible(package):
    module = import_module(package)
    assert dir(module) == sorted(module.__all__)
    names = [name for name in module.__all__ if not name.startswith("__")]
    assert re.findall(rf"^### {re.escape(package)}\.(\w+)$", API, re.MULTILINE) == names
    for name in names:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, name
            assert not value.__doc__.startswith(f"{name}("), f"{name} has the docstring that dataclasses make"


@pytest.mark.usefixtures("needs_minilm")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", [page for page in PAGES if fenced(page, "python|console")], ids=lambda page: page.name)
def test_examples_run(page, in_folder, monkeypatch):
    """Examples of a page run one after the other, beside a folder with the beginnings of some of the pages."""
    source = program(page)
    (in_folder / "docs").mkdir()
    for name in {*SOME_PAGES, *re.findall(r"docs/([\w-]+\.md)", source)}:
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        (in_folder / "docs" / name).write_text(text[:BEGINNING], encoding="utf-8")
    monkeypatch.setattr(fitting, "MIN_FIT", 2)  # whole pages have more chunks
    exec(compile(source, page.name, "exec"), {"__name__": page.stem})


def test_examples_import_documented_names_only():
    documented = set(re.findall(r"^### (ragembed[\w.]*)$", API, re.MULTILINE))
    imports = [
        node
        for page in PAGES
        for node in ast.walk(ast.parse("\n".join(blocks(page, "python"))))
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "ragembed" and node.module != ERRORS
    ]
    assert len(imports) > 20
    assert {f"{node.module}.{alias.name}" for node in imports for alias in node.names} <= documented


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_exist(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_shown_exist_with_their_options(page):
    from click import Context, Group

    from ragembed.cli import COMMANDS, main

    shown = "\n".join(blocks(page, "text") + blocks(page, "console"))
    for line in commands(shown):
        words = line.split()
        if words[0].startswith("-"):
            continue
        assert words[0] in COMMANDS, line
        command = main.get_command(Context(main), words[0])
        if isinstance(command, Group):
            command = command.commands[words[1]]
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for option in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", line):
            assert option in known | {"--help"}, line


def test_the_changelog_has_this_version():
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
