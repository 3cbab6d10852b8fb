"""The documentation is true: generated pages are fresh, examples run, links lead somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ragembed.version import __version__

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BEGINNING = 600
"""How many characters of each page the examples see: to embed whole pages takes minutes."""


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


def test_the_cli_reference_is_fresh():
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate_cli.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.guarantee(52, 54)
@pytest.mark.usefixtures("needs_minilm")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", [page for page in PAGES if fenced(page, "python|console")], ids=lambda page: page.name)
def test_examples_run(page, in_folder):
    """The examples of a page run in order, in a folder ``docs`` with the beginning of each page."""
    (in_folder / "docs").mkdir()
    for each in PAGES:
        (in_folder / "docs" / each.name).write_text(each.read_text(encoding="utf-8")[:BEGINNING], encoding="utf-8")
    exec(compile(program(page), page.name, "exec"), {"__name__": page.stem})


def test_there_are_examples():
    assert sum(len(blocks(page, "python")) for page in PAGES) >= 4


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
