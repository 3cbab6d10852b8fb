"""``--wait``, with or without a number of seconds, for commands that write."""

from __future__ import annotations

import math

import click

_WAIT = "--wait"


class WritingCommand(click.Command):
    """A command that takes ``--wait`` alone (as long as it takes) and ``--wait SECONDS``."""

    def __init__(self, *args: object, **settings: object) -> None:
        super().__init__(*args, **settings)  # type: ignore[arg-type]
        self.params.append(
            click.Option(
                [_WAIT, "wait_seconds"],
                type=float,
                default=0.0,
                callback=_finite,
                metavar="[SECONDS]",
                help="Wait while another process writes to the store, for as long as it takes or for SECONDS.",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give ``--wait`` its number where it has none, and parse."""
        return super().parse_args(ctx, _with_number(args))


def _finite(ctx: click.Context, param: click.Parameter, value: float) -> float:  # noqa: ARG001  click's signature
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number of seconds")
    return value


def _with_number(args: list[str]) -> list[str]:
    """Return the arguments with ``--wait`` and its number as one, ``--wait=-1`` for ever where there is none."""
    joined: list[str] = []
    rest = iter(range(len(args)))
    for i in rest:
        if args[i] == "--":
            return [*joined, *args[i:]]
        if args[i] != _WAIT:
            joined.append(args[i])
        elif i + 1 < len(args) and _is_number(args[i + 1]):
            joined.append(f"{_WAIT}={args[next(rest)]}")
        else:
            joined.append(f"{_WAIT}=-1")
    return joined


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
