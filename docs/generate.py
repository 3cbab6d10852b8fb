"""Write docs/cli.md from the commands and docs/api.md from docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from ragembed.cli import COMMANDS, main

DOCS = Path(__file__).parent
WIDTH = 100
CLI_INTRODUCTION = """\
# Command line

This page is generated from the commands (`make docs`).

Data goes to stdout, progress and notes to stderr. Exit status: 0 = done, or results were found; 1 = no results; 2 = an
error, reported in one sentence; 130 = interrupted; `status --drift` has 3 and 4, see there. JSON objects begin with
`schema_version`, which is raised when a field is removed or changes its meaning.
"""
API_INTRODUCTION = """\
# Python API

This page is generated from the docstrings (`make docs`). It lists every public name; names that are not here may
change at any time. `help(NAME)` shows the whole docstring. All errors are in `ragembed.errors`, see the last section.
"""
PACKAGES = {
    "ragembed": "The functions and classes that most programs need.",
    "ragembed.indexes": "Stores: what they take and return.",
    "ragembed.indexes.tuning": "Settings of a store; [Tuning](tuning.md) explains them.",
    "ragembed.langchain": "Adapters for LangChain; [LangChain](langchain.md) explains them.",
    "ragembed.evaluation": "Measures and test collections; [Evaluation](evaluation.md) explains them.",
    "ragembed.training": "Training on dictionaries; [Training](training.md) explains it.",
    "ragembed.postprocess": "Post-processors; [Embeddings](embeddings.md#post-processors) has their formulas.",
}
WHOLE = "ragembed"
"""The package whose docstrings are shown in full, with those of methods; of others the first paragraph is shown."""
SECTIONS = ("Parameters", "Returns", "Raises", "Yields", "Attributes", "Notes", "Examples")


# The command line


def help_text(command: click.Command, name: str) -> str:
    """Return what ``ragembed NAME --help`` prints, at a fixed width."""
    parent = click.Context(main, info_name="ragembed", **main.context_settings)
    context = click.Context(command, info_name=name, parent=parent) if name != "ragembed" else parent
    context.max_content_width = context.terminal_width = WIDTH
    return command.get_help(context)


def cli_page() -> str:
    """Return the page of the commands."""
    parts = [CLI_INTRODUCTION, f"## ragembed\n\n```text\n{help_text(main, 'ragembed')}\n```\n"]
    context = click.Context(main, info_name="ragembed")
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        parts.append(f"## ragembed {name}\n\n```text\n{help_text(command, name)}\n```\n")
        for task, subcommand in command.commands.items() if isinstance(command, click.Group) else ():
            parts.append(f"### ragembed {name} {task}\n\n```text\n{help_text(subcommand, f'{name} {task}')}\n```\n")
    return "\n".join(parts)


# The Python API


def api_page() -> str:
    """Return the page of the public names."""
    parts = [API_INTRODUCTION]
    for package, about in PACKAGES.items():
        parts.append(f"## {package}\n\n{about}\n")
        names = [name for name in import_module(package).__all__ if not name.startswith("__")]
        parts += [f"### {package}.{name}\n\n{described(package, name)}\n" for name in names]
    errors = inspect.getdoc(import_module("ragembed.errors")) or ""
    tree = re.search(r"::\n\n((?: +.*\n|\n)+)", errors)
    assert tree is not None
    parts.append(f"## ragembed.errors\n\n```text\n{inspect.cleandoc(tree[1])}\n```\n")
    return "\n".join(parts)


def described(package: str, name: str) -> str:
    """Return signature and docstring of a public name, of a class with its methods."""
    value = getattr(import_module(package), name)
    elsewhere = package != WHOLE and name in import_module(WHOLE).__all__
    if elsewhere and value is getattr(import_module(WHOLE), name):
        return f"The same as [`{WHOLE}.{name}`](#{WHOLE}{name.lower()})."
    if isinstance(value, (Mapping, tuple, str)):
        return f"```py\n{name} = {tuple(value) if isinstance(value, Mapping) else value!r}\n```"
    parts = [f"```py\n{signature(name, value)}\n```", documentation(value, package == WHOLE)]
    if inspect.isclass(value):
        parts += [method for method in methods(value, package == WHOLE) if method]
    return "\n\n".join(parts)


def methods(value: type, whole: bool) -> Iterator[str]:
    """Yield the public methods and properties that a class defines: the names of methods alone, unless ``whole``."""
    members = {name: each for name, each in vars(value).items() if not name.startswith("_") and is_documented(each)}
    if not whole:
        called = [name for name, each in members.items() if not isinstance(each, property)]
        names = [f"`{name}`" for name in called if not name.startswith("model_") and name[1:] not in dir(value)]
        twins = " Each has an asynchronous twin." if any(f"a{name}" in members for name in called) else ""
        yield f"Methods: {', '.join(names)}.{twins}" if names else ""
        return
    for name, each in members.items():
        if isinstance(each, property):
            yield f"#### {value.__name__}.{name}\n\n{documentation(each, whole)}"
        else:
            shown = signature(f"{value.__name__}.{name}", getattr(value, name))
            yield f"#### {value.__name__}.{name}\n\n```py\n{shown}\n```\n\n{documentation(each, whole)}"


def is_documented(member: Any) -> bool:
    """Return whether a member of a class is a method or property."""
    return isinstance(member, (property, classmethod, staticmethod)) or inspect.isfunction(member)


def signature(name: str, value: Any) -> str:
    """Return how a function or class is called, one parameter a line where they do not fit into one."""
    if inspect.isclass(value) and getattr(value, "_is_protocol", False):
        return f"class {name}(Protocol)"
    if inspect.isclass(value) and hasattr(value, "model_fields"):  # pydantic's signature has inherited fields, too
        fields = [key for key in vars(value).get("__annotations__", {}) if not key.startswith(("_", "model_"))]
        return laid_out(f"class {name}", [f"{key}=..." for key in fields], "")
    parameters = [shown(each) for each in inspect.signature(value).parameters.values() if each.name != "self"]
    kinds = [each.kind for each in inspect.signature(value).parameters.values() if each.name != "self"]
    keywords = kinds.index(inspect.Parameter.KEYWORD_ONLY) if inspect.Parameter.KEYWORD_ONLY in kinds else None
    if keywords is not None and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parameters.insert(keywords, "*")
    if inspect.isclass(value):
        return laid_out(f"class {name}", parameters, "")
    returned = inspect.signature(value).return_annotation
    return laid_out(name, parameters, "" if returned is inspect.Signature.empty else f" -> {text_of(returned)}")


def laid_out(start: str, parameters: list[str], end: str) -> str:
    """Return a signature, in several lines where it is long."""
    line = f"{start}({', '.join(parameters)}){end}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{start}(", *(f"    {each}," for each in parameters), f"){end}"])


def shown(parameter: inspect.Parameter) -> str:
    """Return a parameter with its type and default."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = stars + parameter.name
    typed = parameter.annotation is not inspect.Parameter.empty
    text += f": {text_of(parameter.annotation)}" if typed else ""
    if parameter.default is inspect.Parameter.empty:
        return text
    return text + (" = " if typed else "=") + default_of(parameter.default)


def text_of(annotation: Any) -> str:
    """Return an annotation as it is written in the source."""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def default_of(value: Any) -> str:
    """Return a default, as dots where it is no simple value."""
    if isinstance(value, Enum):
        return str(value)
    if dataclasses.is_dataclass(value) or " at 0x" in repr(value) or repr(value).startswith("<"):
        return "..."
    return repr(value)


def documentation(value: Any, whole: bool) -> str:
    """Return a docstring as Markdown: all of it, or its first paragraph."""
    text = inspect.getdoc(value) or ""
    return markdown(text if whole else text.partition("\n\n")[0])


def markdown(text: str) -> str:
    """Return a docstring of reStructuredText with NumPy's sections as Markdown."""
    text = re.sub(r":[a-z]+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    text = re.sub(r"``(.*?)``", r"`\1`", text)
    text = re.sub(r"((?:^>>> .*\n?(?:^(?!>>>|$).*\n?)*)+)", _example, text, flags=re.MULTILINE)
    lines: list[str] = []
    section = None
    source = text.split("\n")
    for number, line in enumerate(source):
        following = source[number + 1] if number + 1 < len(source) else ""
        if line in SECTIONS and re.fullmatch("-+", following):
            section = line
            lines += [f"**{line}**", ""]
        elif section is not None and re.fullmatch("-{3,}", line):
            continue
        elif section is not None and line and not line.startswith(" "):
            lines.append(f"- {code(line)}: ")
        elif section is not None and line.startswith("    "):
            lines[-1] = lines[-1].rstrip() + " " + line.strip()
        else:
            lines.append(line)
    return "\n".join(lines).strip()


def _example(match: re.Match[str]) -> str:
    shown = re.sub(r" +# doctest:.*", "", match[1]).rstrip("\n")
    return f"```pycon\n{shown}\n```\n"


def code(line: str) -> str:
    """Return the names of a section's entry as code."""
    return ", ".join(f"`{name.strip()}`" for name in line.split(","))


PAGES = {"cli.md": cli_page, "api.md": api_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
