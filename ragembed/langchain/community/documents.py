"""A document of a saved store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class PickledDocument:
    """A document's id, its text, and its metadata as JSON values."""

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
