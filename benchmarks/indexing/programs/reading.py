"""Read the vectors through, in blocks, and do nothing with them: the memory that each contestant has at least."""

from __future__ import annotations

from collections.abc import Iterator

from asking import Request, Search, blocks, main, mapped


def build(request: Request) -> dict[str, float]:
    """Touch every vector."""
    return {"sum": float(sum(block.sum() for _, block in blocks(mapped(request))))}


def settings(request: Request) -> Iterator[tuple[str, Search]]:
    """Yield nothing: there is no index to ask."""
    del request
    yield from ()


if __name__ == "__main__":
    main(build, settings)
