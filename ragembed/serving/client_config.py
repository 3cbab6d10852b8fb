"""Configurations that make a client start ``ragembed mcp``: printed, written into its file, and taken out again.

A file is changed as text, so that everything of others stays as it is, comments included.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from ragembed.errors import ConfigError
from ragembed.files import replace_file

_NAME = "ragembed"
_SKILL = "SKILL.md"


@dataclass(frozen=True, slots=True)
class Client:
    """A client: its file, the key of its servers, what an entry has besides the command, and its folder of skills.

    Paths begin with ``~`` or ``$``, or are relative to the folder of a project.
    """

    file: str
    key: str = "mcpServers"
    more: Mapping[str, str] = field(default_factory=dict)
    skills: str | None = None


CLIENTS: Mapping[str, Client] = {
    "claude": Client(".mcp.json", skills=".claude/skills"),
    "codex": Client("~/.codex/config.toml", "mcp_servers", skills="~/.agents/skills"),
    "cursor": Client(".cursor/mcp.json", skills=".cursor/skills"),
    "gemini": Client("~/.gemini/settings.json", skills="~/.gemini/skills"),
    "vscode": Client(".vscode/mcp.json", "servers", {"type": "stdio"}, ".agents/skills"),
    "windsurf": Client("~/.codeium/windsurf/mcp_config.json"),
    "zed": Client(
        "$APPDATA/Zed/settings.json" if os.name == "nt" else "~/.config/zed/settings.json", "context_servers"
    ),
}
"""The clients by name."""


def server_entry(client: str, stores: Mapping[str, Path], auto_index: float | None = None) -> dict[str, Any]:
    """Return the entry that starts the server. Paths are absolute: clients start servers anywhere."""
    script = Path(sysconfig.get_path("scripts"), "ragembed.exe" if os.name == "nt" else "ragembed")
    program, *arguments = [str(script)] if script.is_file() else [sys.executable, "-m", "ragembed"]
    arguments.append("mcp")
    for name, path in stores.items():
        arguments += ["--store", f"{name}={os.path.abspath(path)}"]  # noqa: PTH100  resolve() would follow symbolic links
    if auto_index is not None:
        arguments.append(f"--auto-index={auto_index:g}")
    return {**CLIENTS[client].more, "command": program, "args": arguments}


def client_config(client: str, entry: Mapping[str, Any]) -> str:
    """Return a whole configuration with the entry alone."""
    return _with_entry(Path(CLIENTS[client].file), "", CLIENTS[client].key, entry)


@dataclass(frozen=True, slots=True)
class FileChange:
    """The text of a file before and after a change; None stands for no file."""

    path: Path
    before: str | None
    after: str | None

    @property
    def diff(self) -> str:
        """The change, line by line."""
        before, after = ((text or "").splitlines(keepends=True) for text in (self.before, self.after))
        lines = difflib.unified_diff(before, after, str(self.path), str(self.path), n=1)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def apply(self) -> None:
        """Write the file, through a symbolic link to it, or delete it and the folders that are then empty."""
        path = self.path.resolve()
        if self.after is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, self.after.encode())
            return
        path.unlink()
        with contextlib.suppress(OSError):  # a folder that is not empty
            for folder in self.path.parents:
                if folder in (Path(), Path.home()):
                    break
                folder.rmdir()


def changes(client: str, entry: Mapping[str, Any] | None) -> list[FileChange]:
    """Return what changes in the configuration and the skill of a client if it gets an entry, or loses it (None).

    Raises :class:`ConfigError` if a file cannot be read, or holds an entry or a skill of others with our name.
    """
    about = CLIENTS[client]
    path = _path(about.file)
    text = _read(path)
    if entry is None:
        after = text and _without_entry(path, text, about.key)
    else:
        after = _with_entry(path, text or "", about.key, entry)
    made = [FileChange(path, text, after)]
    if about.skills is not None:
        path = _path(about.skills) / _NAME / _SKILL
        text, skill = _read(path), files("ragembed.serving").joinpath("static", _SKILL).read_text(encoding="utf-8")
        if text is not None and f"\nname: {_NAME}\n" not in text:
            raise ConfigError(f"{path} is not a skill of ragembed: move it away")
        made.append(FileChange(path, text, None if entry is None else skill))
    return [change for change in made if change.before != change.after]


def _path(text: str) -> Path:
    if text.startswith("~/.codex/") and "CODEX_HOME" in os.environ:
        return Path(os.environ["CODEX_HOME"], text.removeprefix("~/.codex/"))
    return Path(os.path.expandvars(text)).expanduser()


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path} cannot be read: {reason}; nothing was changed") from None


def _is_own(entry: Any) -> bool:
    """Return whether an entry starts ragembed."""
    try:
        command = [entry["command"], *entry.get("args", ())]
    except (TypeError, KeyError, AttributeError):
        return False
    return PurePath(str(command[0])).stem == _NAME or command[1:3] == ["-m", _NAME]


def _servers(path: Path, values: Mapping[str, Any], key: str) -> Any:
    """Return the table of servers; raise :class:`ConfigError` if it is none, or has another server with our name."""
    servers = values.get(key, {})
    if not isinstance(servers, Mapping):
        raise ConfigError(f"{path} has no table of servers where one is expected: nothing was changed")
    if _NAME in servers and not _is_own(servers[_NAME]):
        raise ConfigError(f"{path} has a server 'ragembed' that is not this program: rename it; nothing was changed")
    return servers


def _with_entry(path: Path, text: str, key: str, entry: Mapping[str, Any]) -> str:
    if path.suffix == ".toml":
        document = _toml(path, text)
        servers = _servers(path, document, key)
        if _NAME not in servers and text:
            appended = text + ("\n" if text.endswith("\n") else "\n\n") + tomlkit.dumps({key: {_NAME: entry}})
            with contextlib.suppress(TOMLKitError):  # an inline table of servers has to be changed in its place
                tomlkit.parse(appended)
                return appended
        document.setdefault(key, tomlkit.table(is_super_table=True))[_NAME] = {**servers.get(_NAME, {}), **entry}
        return tomlkit.dumps(document)
    if not text.strip():
        return json.dumps({key: {_NAME: entry}}, indent=2, ensure_ascii=False) + "\n"
    document = _JsonText(path, text)
    servers = _servers(path, document.value, key)
    if _NAME in servers:
        return document.replaced((key, _NAME), {**servers[_NAME], **entry})
    if key in document.value:
        return document.inserted((key,), _NAME, entry)
    return document.inserted((), key, {_NAME: entry})


def _without_entry(path: Path, text: str, key: str) -> str | None:
    """Return the text without the entry, and without the table of servers if it is then empty; None for nothing."""
    if path.suffix == ".toml":
        document = _toml(path, text)
        servers = _servers(path, document, key)
        if _NAME in servers:
            own = "\n" + tomlkit.dumps({key: {_NAME: servers[_NAME].unwrap()}})
            if own in text:
                return text.replace(own, "", 1)
            del servers[_NAME]
            if not servers:
                del document[key]
        return tomlkit.dumps(document) or None
    document = _JsonText(path, text)
    servers = _servers(path, document.value, key)
    if _NAME not in servers:
        return text
    if len(servers) > 1:
        return document.removed((key, _NAME))
    return document.removed((key,)) if len(document.value) > 1 else None


def _toml(path: Path, text: str) -> Any:
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise ConfigError(f"{path} is not TOML: {error}; nothing was changed") from None


_STRING = r'("(?:\\.|[^"\\])*")'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_SPACE = re.compile(r"\s*")


class _JsonText:
    """A JSON object as text that can be changed; clients accept comments and a comma after the last item in it."""

    def __init__(self, path: Path, text: str) -> None:
        self._text = self._plain = text
        for ignored in (_COMMENT, _LAST_COMMA):
            self._plain = ignored.sub(lambda match: match[1] or " " * len(match[0]), self._plain)
        try:
            self.value = json.loads(self._plain)
        except (ValueError, RecursionError):
            self.value = None
        if not isinstance(self.value, dict):
            raise ConfigError(f"{path} is not a JSON object: nothing was changed")

    def _after_space(self, at: int) -> int:
        space = _SPACE.match(self._plain, at)
        return at if space is None else space.end()

    def _span(self, path: Sequence[str]) -> tuple[int, int, int]:
        """Return where a member begins, where its value begins, and where it ends."""
        decode = json.JSONDecoder().raw_decode
        span = (0, self._after_space(0), len(self._plain.rstrip()))
        for wanted in path:
            name, at = None, self._after_space(span[1] + 1)
            while name != wanted:
                start = at
                name, at = decode(self._plain, start)
                begin = self._after_space(self._after_space(at) + 1)
                at = decode(self._plain, begin)[1]
                span = (start, begin, at)
                at = self._after_space(self._after_space(at) + 1)
        return span

    def _written(self, value: Any, depth: int) -> str:
        newline = "\r\n" if "\r\n" in self._text else "\n"
        unit = match[1] if (match := re.search(r"\n([ \t]+)\S", self._text)) else "  "
        return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", newline + unit * depth)

    def replaced(self, path: Sequence[str], value: Any) -> str:
        """Return the text with another value at ``path``."""
        _, begin, end = self._span(path)
        return self._text[:begin] + self._written(value, len(path)) + self._text[end:]

    def inserted(self, path: Sequence[str], name: str, value: Any) -> str:
        """Return the text with a first member of the object at ``path``."""
        at = self._span(path)[1] + 1
        member = self._written({name: value}, len(path))
        if self._plain[self._after_space(at)] == "}":
            return self.replaced(path, {name: value})
        return f"{self._text[:at]}{member[1:-1].rstrip()},{self._text[at:]}"

    def removed(self, path: Sequence[str]) -> str:
        """Return the text without a member and its comma."""
        start, _, end = self._span(path)
        before, following = self._text[:start].rstrip(), self._after_space(end)
        if self._plain[following] == ",":
            return before + self._text[following + 1 :]
        comma = len(self._plain[:start].rstrip()) - 1
        if self._plain[comma] == ",":
            before = before[:comma] + before[comma + 1 :]
        return before + self._text[end:]
