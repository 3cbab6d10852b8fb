"""The public names of the package."""

from __future__ import annotations

import langchain_ragembed
from ragembed import langchain as original


def test_every_class_of_ragembed_langchain_is_exported() -> None:
    for name in original.__all__:
        assert getattr(langchain_ragembed, name) is getattr(original, name)
    aliases = {name for name in langchain_ragembed.__all__ if name.startswith("Ragembed")}
    for name in aliases:
        assert getattr(langchain_ragembed, name) is getattr(original, name.replace("Ragembed", "Rag"))
    assert set(langchain_ragembed.__all__) == {*original.__all__, *aliases}
