"""``--wait``, with or without a number of seconds, for commands that write."""

from __future__ import annotations

import math

import click

from ragembed.cli.optional_number import with_number

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
        """Give ``--wait`` its number where it has none, -1 for as long as it takes, and parse."""
        return super().parse_args(ctx, with_number(args, _WAIT, -1))


def _finite(ctx: click.Context, param: click.Parameter, value: float) -> float:  # noqa: ARG001  click's signature
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number of seconds")
    return value
