"""Fixtures: programs that run in a network of their own, with a Ray cluster in it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.distributed import cluster

# Other processes import what they are sent by name, and look in the same places.
sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def run_in_namespace() -> Callable[..., Any]:
    """``run_in_namespace(script, *args, timeout=…)``: the JSON that a script printed last, `stdout` and `stderr`."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'ragembed[ray]'")
    reason = cluster.why_no_namespace()
    if reason is not None:
        pytest.skip(reason)
    return cluster.run_in_namespace
