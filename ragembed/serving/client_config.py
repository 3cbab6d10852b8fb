"""Configurations that make a client start ``ragembed mcp``, in the format of each client."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NAME = "ragembed"


@dataclass(frozen=True, slots=True)
class ClientFormat:
    """A client: the file that holds its configuration, and a function that returns the content for a command."""

    file: str
    content: Callable[[str, Sequence[str]], dict[str, Any]]
    write: Callable[[dict[str, Any]], str]


def _as_json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _as_toml(value: dict[str, Any]) -> str:
    import tomlkit

    return tomlkit.dumps(value)


def _entry(key: str, **more: Any) -> Callable[[str, Sequence[str]], dict[str, Any]]:
    return lambda program, arguments: {key: {_NAME: {**more, "command": program, "args": list(arguments)}}}


CLIENTS: Mapping[str, ClientFormat] = {
    "claude": ClientFormat(".mcp.json in your project, or claude_desktop_config.json", _entry("mcpServers"), _as_json),
    "codex": ClientFormat("~/.codex/config.toml", _entry("mcp_servers"), _as_toml),
    "cursor": ClientFormat(".cursor/mcp.json in your project, or ~/.cursor/mcp.json", _entry("mcpServers"), _as_json),
    "gemini": ClientFormat("~/.gemini/settings.json", _entry("mcpServers"), _as_json),
    "vscode": ClientFormat(".vscode/mcp.json in your project", _entry("servers", type="stdio"), _as_json),
    "windsurf": ClientFormat("~/.codeium/windsurf/mcp_config.json", _entry("mcpServers"), _as_json),
    "zed": ClientFormat("settings.json of Zed", _entry("context_servers"), _as_json),
}
"""The clients by name."""


def client_config(client: str, stores: Mapping[str, Path], auto_index: float | None = None) -> str:
    """Return the text to put into the configuration of a client. Paths are absolute: clients start servers anywhere."""
    program, *arguments = _program()
    arguments.append("mcp")
    for name, path in stores.items():
        arguments += ["--store", f"{name}={os.path.abspath(path)}"]  # noqa: PTH100  resolve() would follow symbolic links
    if auto_index is not None:
        arguments.append(f"--auto-index={auto_index:g}")
    known = CLIENTS[client]
    return known.write(known.content(program, arguments))


def _program() -> list[str]:
    """Return the command that starts ragembed in this environment, from any folder."""
    script = Path(sysconfig.get_path("scripts"), "ragembed.exe" if os.name == "nt" else "ragembed")
    return [str(script)] if script.is_file() else [sys.executable, "-m", "ragembed"]
