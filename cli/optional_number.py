"""Options that stand alone or with a number after them, as ``--wait`` and ``--wait 5`` do."""

from __future__ import annotations

import math


def with_number(args: list[str], option: str, alone: float) -> list[str]:
    """Return the arguments with ``option`` and its number as one, ``option=alone`` where no number follows it."""
    joined: list[str] = []
    rest = iter(range(len(args)))
    for i in rest:
        if args[i] == "--":
            return [*joined, *args[i:]]
        if args[i] != option:
            joined.append(args[i])
        elif i + 1 < len(args) and _is_number(args[i + 1]):
            joined.append(f"{option}={args[next(rest)]}")
        else:
            joined.append(f"{option}={alone:g}")
    return joined


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
