"""The program ``ragembed``; also ``python -m ragembed``."""

from __future__ import annotations

import sys

_INTERRUPTED_EXIT = 130


def main() -> None:
    """Run the command line. An interruption while it is loaded ends without a traceback."""
    try:
        from ragembed.cli import main as command

        command()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(_INTERRUPTED_EXIT)


if __name__ == "__main__":
    main()
