"""The version of the package, and where this copy was installed from."""

from __future__ import annotations

import shlex
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

__version__ = "0.1.0"
SCHEMA_VERSION = 1
"""Version of the JSON that the command line prints and the servers answer."""


@cache
def install_command(extra: str) -> str:
    """Return the command that installs an extra from where this copy comes (PEP 610)."""
    import json
    from importlib.metadata import distributions

    source: dict[str, Any] = {}
    program = "pip install"
    for copy in distributions(name="ragembed"):  # A clone has one in its folder, too, which does not say where it is.
        if text := copy.read_text("direct_url.json"):
            source = json.loads(text)
        if (copy.read_text("INSTALLER") or "").strip() == "uv":
            program = "uv pip install"
    url = str(source.get("url", ""))
    if "dir_info" in source and urlsplit(url).scheme == "file":
        editable = "-e " if source["dir_info"].get("editable") else ""
        return f"{program} {editable}{shlex.quote(f'{url2pathname(urlsplit(url).path)}[{extra}]')}"
    if "vcs_info" in source:
        vcs = source["vcs_info"]
        url = f"{vcs['vcs']}+{url}@{vcs.get('requested_revision') or vcs['commit_id']}"
    if source.get("subdirectory"):
        url += f"#subdirectory={source['subdirectory']}"
    return f"{program} 'ragembed[{extra}]{f' @ {url}' if url else ''}'"
