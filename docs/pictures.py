"""Record a terminal session as a picture: ``python docs/pictures.py`` writes ``docs/_static/query.svg``."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

DOCS = Path(__file__).resolve().parent
COLUMNS = 130
PAGES = ("explanation/reliability.md", "explanation/how-search-works.md", "reference/filters.md")
COMMANDS = (
    ("index", "notes"),
    ("query", "what survives when the process is killed", "-k", "2"),
    ("index",),
)
SVG_FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px;
  line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Rich's format without the fonts that it loads from the network."""


def main() -> None:
    """Run the commands in a folder of its own, and write what they print as a picture."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: PTH123, SIM115
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "notes").mkdir()
        for page in PAGES:
            shutil.copy(DOCS / page, Path(folder) / "notes")
        for command in COMMANDS:
            console.print(Text(f"$ ragembed {' '.join(map(_quoted, command))}", style="bold"))
            console.print(Text.from_ansi(_output(command, folder)))
    (DOCS / "_static" / "query.svg").write_text(
        console.export_svg(title="ragembed", theme=DIMMED_MONOKAI, code_format=SVG_FORMAT, unique_id="ragembed"),
        encoding="utf-8",
    )


def _quoted(word: str) -> str:
    return f'"{word}"' if " " in word else word


def _output(command: tuple[str, ...], folder: str) -> str:
    """Return what a command prints to a terminal, and its last note, without links."""
    parent, child = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    program = Path(sys.executable).with_name("ragembed")
    with subprocess.Popen(  # noqa: S603
        [program, *command], cwd=folder, env=environment, stdout=child, stderr=subprocess.PIPE
    ) as process:
        os.close(child)
        parts = []
        while part := _read(parent):
            parts.append(part)
        notes = process.stderr.read().splitlines()
    os.close(parent)
    if process.returncode:
        raise SystemExit(f"ragembed {' '.join(command)} failed with exit status {process.returncode}")
    text = b"".join([*parts, *notes[-1:]]).decode().replace("\r\n", "\n")
    return re.sub(r"\x1b\]8;[^\x1b\x07]*(?:\x1b\\|\x07)", "", text).rstrip("\n")


def _read(terminal: int) -> bytes:
    """Return the next bytes of a terminal, and none when the program has closed it."""
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux reports the end
        return b""


if __name__ == "__main__":
    main()
