"""The program of either side: ``PROGRAM TASK REQUEST``, the request being JSON, prints JSON."""

from __future__ import annotations

import json
import sys

import crowd
import searching
import writing
from side import Side

TASKS = {
    "make": writing.make,
    "open": searching.first,
    "search": searching.plain,
    "filtered": searching.filtered,
    "threads": crowd.read,
    "change": writing.change,
    "writer": crowd.read_and_write,
}


def main(side: Side) -> None:
    """Do what the command line asks for, and print what came of it."""
    print(json.dumps(TASKS[sys.argv[1]](side, json.loads(sys.argv[2]))))
