"""The documentation is correct: examples run, links lead somewhere, and every public name is in the reference."""

import ast
import inspect
import re
import runpy
import shutil
from importlib import import_module
from pathlib import Path

import pytest

import ragembed
from ragembed.indexes.indexing import fitting
from ragembed.version import __version__
from tests.pages import VARIES, VARIES_WITH_THE_DOCS, Reader, commands, fenced, is_shown

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("packages/*/README.md")), *sorted(DOCS.glob("**/*.md"))]
API = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference" / "api").glob("*.md"))
PACKAGES = sorted(set(re.findall(r"automodule:: (\S+)", API)))
ERRORS = "ragembed.errors"
SENTENCES = ("ragembed.evaluation", "ragembed.papers", "ragembed.papers.training", "ragembed.postprocess")
"""The packages whose names are described in a few sentences, without sections and examples."""
CREATED_BY_METHODS = {"Collection", "Store"}
"""Classes whose constructor is not public; their class methods create the objects."""
SOME_PAGES = ("explanation/how-search-works.md", "reference/filters.md", "explanation/reliability.md")
"""The pages in docs/ where the examples run. Few are fast."""
BEGINNING = 1500
"""Characters of each of these pages. Embedding whole pages takes minutes."""
FOUND_BY_THE_README = "reference/store-format.md"
"""A whole page, because the README shows a part of it."""
LONGEST_PAGE = 250
"""Lines."""


def public_names(package):
    """Return the names that the reference shows: ``__all__``, and the classes of a module that has none."""
    module = import_module(package)
    if hasattr(module, "__all__"):
        return module.__all__
    return [name for name, value in vars(module).items() if inspect.isclass(value)]


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page, language):
    return [block for _, block in fenced(page, language)]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_lists_the_public_names(package):
    module = import_module(package)
    assert package == ERRORS or dir(module) == sorted(module.__all__)
    excluded = re.search(rf"automodule:: {re.escape(package)}\n   :exclude-members: (.*)", API)
    for name in excluded[1].split(", ") if excluded else ():
        assert getattr(module, name) is getattr(ragembed, name)
        assert package != "ragembed" or f"autoclass:: ragembed.{name}\n" in API, name


@pytest.mark.parametrize("package", [package for package in PACKAGES if package not in SENTENCES])
def test_public_names_have_docstrings(package):
    """Each class and function has an example, and each parameter of it and of its methods is described.

    The methods of adapters for LlamaIndex and Haystack have the parameters of these frameworks, so they are left out.
    """
    for name in public_names(package):
        value = getattr(import_module(package), name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        text = inspect.getdoc(value)
        assert text, name
        assert not text.startswith(f"{name}("), f"{name} has the docstring that dataclasses make"
        assert package == ERRORS or re.search(r"^ *>>> |^ *\.\. code-block:: python$", text, re.MULTILINE), name
        if name not in CREATED_BY_METHODS:
            assert not undescribed(value, text), name
        for method, function in methods(value):
            text = inspect.getdoc(function)
            assert text, f"{name}.{method}"
            if package in ("ragembed.llamaindex", "ragembed.haystack"):
                continue
            if twin := re.match(r"Run :meth:`(\w+)` in a thread", text):
                assert undescribed(function, inspect.getdoc(getattr(value, twin[1]))) <= {"kwargs"}
            else:
                assert not undescribed(function, text), f"{name}.{method}"


def methods(value):
    """Return the public methods and properties that a class defines itself, except those that pydantic adds."""
    if not inspect.isclass(value):
        return []
    names = [name for name in vars(value) if not name.startswith(("_", "model_"))]
    found = [(name, inspect.getattr_static(value, name)) for name in names]
    return [
        (name, getattr(member, "__func__", member))
        for name, member in found
        if isinstance(member, (classmethod, staticmethod, property)) or inspect.isfunction(member)
    ]


def undescribed(value, text):
    """Return the parameters of a function or class without an entry in the sections of its docstring."""
    if isinstance(value, property) or getattr(value, "_is_protocol", False) or is_exception(value):
        return set()
    parts = re.split(r"^(.+)\n-{3,}$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    described = sections.get("Parameters", "") + sections.get("Attributes", "")
    entries = re.findall(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$", described, re.MULTILINE)
    names = {name.lstrip("*") for entry in entries for name in entry.split(", ")}
    hidden = type(value).__name__ == "ComponentMeta"  # Haystack's decorator hides the signature
    own = set(inspect.signature(value.__init__ if hidden else value).parameters) - {"self", "cls"}
    if hasattr(value, "model_fields"):  # The signature of a pydantic model has the fields of its base classes too.
        own &= set(value.__annotations__)
    return own - names


def is_exception(value):
    return inspect.isclass(value) and issubclass(value, BaseException)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The working directory of the examples, which is a store's name in some of them."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.usefixtures("needs_minilm")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", [page for page in PAGES if fenced(page, "python|console")], ids=name_of)
def test_examples_run(page, project, monkeypatch):
    """The examples of a page run in order and print what it shows.

    Tutorials begin in an empty folder. The folder of other pages contains the beginnings of some pages, and what the
    README finds.
    """
    if page.parent.name != "tutorials":
        source = "\n".join(block for _, block in fenced(page, "python|console"))
        found = {FOUND_BY_THE_README} if page == ROOT / "README.md" else set()
        for name in {*SOME_PAGES, *found, *re.findall(r"docs/((?:[\w-]+/)*[\w-]+\.md)", source)}:
            copy = project / "docs" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            end = None if name in found else BEGINNING
            copy.write_text((DOCS / name).read_text(encoding="utf-8")[:end], encoding="utf-8")
        monkeypatch.setattr(fitting, "MIN_FIT", 2)  # the beginnings have few chunks
    if page.parent.parent.name == "packages":
        monkeypatch.syspath_prepend(page.parent)
    Reader(page, project).read()


@pytest.mark.slow
@pytest.mark.usefixtures("needs_minilm")
def test_the_readme_shows_an_answer_from_all_pages(project):
    shutil.copytree(DOCS, project / "docs", ignore=shutil.ignore_patterns("_build"))
    Reader(ROOT / "README.md", project).read()


def test_the_readme_shows_the_commands_of_make_quickstart():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nquickstart:")[2].partition("\n\n")[0]
    [block] = blocks(ROOT / "README.md", "console")
    assert commands(block) == re.findall(r"^\t\$\(BIN\)/ragembed (.*)$", makefile, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_output_is_in_blocks_that_are_compared(page):
    """An ``output`` block follows what prints it, and a ``text`` block has no command with its output."""
    languages = [language for language, _ in fenced(page, "python|console|output|text|toml|json")]
    assert not any(language == "output" and i == 0 for i, language in enumerate(languages))
    assert not any(line.startswith("$ ") for block in blocks(page, "text") for line in block.splitlines())


@pytest.mark.parametrize(
    ("shown", "printed", "varies", "same"),
    [
        ("3 files; 1.7 s", "3 files;  20.4 s\n", VARIES, True),
        ("3 files; 1.7 s", "4 files; 1.7 s", VARIES, False),
        ("3 files; 1.7 s", "1,204 files; 1.7 s", VARIES_WITH_THE_DOCS, True),
        ("a.md:1-4 (1.2, weak match)", "a.md:2-9 (-0.3)", VARIES_WITH_THE_DOCS, True),
        ("a.md:1-4 (1.2, weak match)", "a.md:1-4 (1.2, strong match)", VARIES, False),
        ("one\n…\nfour", "one\ntwo\nthree\nfour", VARIES, True),
        ("version 0.1.0", "version 0.1.2", VARIES, False),
    ],
)
def test_outputs_are_compared_word_by_word(shown, printed, varies, same):
    assert is_shown(shown, printed, varies) is same


def test_examples_import_documented_names_only():
    documented = {f"{package}.{name}" for package in PACKAGES for name in public_names(package)}
    imports = [
        node
        for page in PAGES
        for node in ast.walk(ast.parse("\n".join(blocks(page, "python"))))
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "ragembed"
    ]
    assert len(imports) > 20
    assert {f"{node.module}.{alias.name}" for node in imports for alias in node.names} <= documented


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_named_files_of_the_project_exist(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / target).exists(), target
    for target in re.findall(r"`((?:tests|benchmarks)/[\w./-]+\.\w+)`", text):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_shown_commands_and_options_exist(page):
    from click import Context, Group

    from ragembed.cli import COMMANDS, main

    shown = "\n".join(blocks(page, "text") + blocks(page, "console"))
    for line in commands(shown):
        words = line.split()
        if words[0].startswith("-"):
            continue
        assert words[0] in COMMANDS, line
        command = main.get_command(Context(main), words[0])
        for word in words[1:]:
            if isinstance(command, Group):
                command = command.commands[word]
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for option in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", line):
            assert option in known | {"--help"}, line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_install_ragembed_from_where_it_is(page):
    """It is not on PyPI: commands name a clone, a repository, or a folder with wheels."""
    for line in re.findall(r"\b(?:pipx?|tool) install [^`\n]*\bragembed\b[^`\n]*", page.read_text(encoding="utf-8")):
        assert re.search(r" @ git\+| --find-links | --no-deps gt-| \./packages/", line), line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_are_short(page):
    assert len(page.read_text(encoding="utf-8").splitlines()) <= LONGEST_PAGE


def test_the_picture_of_the_layers_shows_the_imports():
    """To correct the picture, run ``python -m docs.layers``."""
    layers = runpy.run_path(str(DOCS / "layers.py"))
    assert layers["PICTURE"].read_text(encoding="utf-8") == layers["draw"](layers["imported_boxes"]())


def test_the_tables_of_settings_are_those_of_the_classes():
    """To correct the page, run ``python docs/settings.py``."""
    tables = runpy.run_path(str(DOCS / "settings.py"))
    page = tables["PAGE"].read_text(encoding="utf-8")
    assert tables["with_tables"](page) == page


def test_the_changelog_has_this_version():
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
