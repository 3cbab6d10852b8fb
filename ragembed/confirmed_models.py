"""Models that the user has named: folders, files and servers.

A store may come from somebody else, who must not choose a folder that is loaded or a server that gets the queries. The
names are kept in a file of the user's configuration folder, one JSON string a line.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from ragembed.files import NO_LINK, make_folders, read_regular, sync, user_folder

_FILE = "models"
_MOST_BYTES = 1_000_000


def confirm_model(name: str) -> None:
    """Remember that the user named a model, if the configuration folder can be written."""
    if is_confirmed(name):
        return
    file = _file()
    with contextlib.suppress(OSError):
        make_folders(file.parent)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK, 0o600)
        with open(descriptor, "wb") as stream:  # noqa: PTH123  a descriptor, for the flags
            stream.write(json.dumps(name).encode() + b"\n")
        sync(file)  # A store that is committed later needs the name.
        sync(file.parent)


def is_confirmed(name: str) -> bool:
    """Return whether the user has named a model before."""
    try:
        known = read_regular(_file(), _MOST_BYTES).split(b"\n")
    except OSError:
        return False
    return json.dumps(name).encode() in known


def _file() -> Path:
    return user_folder() / _FILE
