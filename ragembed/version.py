"""The version of the package, and where this copy was installed from."""

from __future__ import annotations

from functools import cache
from typing import Any

__version__ = "0.2.0"
SCHEMA_VERSION = 1
"""Version of the JSON that the command line prints and the servers answer."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra from where this copy comes."""
    return f"{pip_install()} {_origin(f'[{extra}]')}"


def upgrade_command() -> str:
    """Return the command that installs a newer version, once it is where this copy comes from."""
    return f"{pip_install()} --upgrade {_origin('')}"


@cache
def _origin(extras: str) -> str:
    """Return what pip installs to get this copy with extras (PEP 610)."""
    # Most runs never need these, which take tens of milliseconds to import.
    import json
    import shlex
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    source: dict[str, Any] = {}
    for text in _recorded("direct_url.json"):
        source = json.loads(text)
    url = str(source.get("url", ""))
    if "dir_info" in source and urlsplit(url).scheme == "file":
        editable = "-e " if source["dir_info"].get("editable") else ""
        return f"{editable}{shlex.quote(f'{url2pathname(urlsplit(url).path)}{extras}')}"
    if "vcs_info" in source:
        vcs = source["vcs_info"]
        url = f"{vcs['vcs']}+{url}@{vcs.get('requested_revision') or vcs['commit_id']}"
    if source.get("subdirectory"):
        url += f"#subdirectory={source['subdirectory']}"
    return shlex.quote(f"ragembed{extras} @ {url}" if url else f"ragembed{extras}")


@cache
def pip_install() -> str:
    """Return the command, without packages, that installs into the environment of this copy.

    Environments of uv, uvx and pipx may have no pip, and the environment of a program need not be the active one.
    """
    import os
    import shlex
    import shutil
    import sys
    from pathlib import Path

    python = shlex.quote(sys.executable)
    if any(text.strip() == "uv" for text in _recorded("INSTALLER")):
        active = os.environ.get("VIRTUAL_ENV") == sys.prefix
        return "uv pip install" if active else f"uv pip install --python {python}"
    active = Path(shutil.which("pip") or "").parent == Path(sys.executable).parent
    return "pip install" if active else f"{python} -m pip install"


def _recorded(name: str) -> list[str]:
    """Return a file of the metadata, which a clone has a second time, without this file, in its own folder."""
    from importlib.metadata import distributions

    return [text for copy in distributions(name="ragembed") if (text := copy.read_text(name))]
