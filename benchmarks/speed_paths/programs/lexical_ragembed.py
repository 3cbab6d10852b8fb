"""ragembed's side of lexical search."""

from __future__ import annotations

from typing import Any

from waiting import Told, Turn, main, milliseconds

from ragembed.indexes import Store


def make(request: dict[str, Any]) -> tuple[Turn, Told]:
    """Return a turn that asks the turn's questions, and tells the milliseconds of each."""
    store = Store.open(request["store"])

    def turn(number: int) -> Told:
        return {"taken": milliseconds(request["questions"][number], lambda text: store.search(text, mode="lexical"))}

    return turn, {}


if __name__ == "__main__":
    main(make)
