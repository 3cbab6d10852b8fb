"""The table of where pseudo-queries come from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ragembed.tuning.other_sources import column, docstring, link
from ragembed.tuning.prose_sources import first_sentence, heading, sentence, span, title
from ragembed.tuning.queries import Source

SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        "sentence": sentence,
        "first sentence": first_sentence,
        "span": span,
        "heading": heading,
        "title": title,
        "link": link,
        "docstring": docstring,
        "column": column,
    }
)
"""By name, in the order in which they are reported."""
LOG = "query log"
"""The name of the questions that a user gives."""
