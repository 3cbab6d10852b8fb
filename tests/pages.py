"""Run the examples of a page as its reader would, and compare what they print with what the page shows."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

SECONDS = 90
"""How long a server may take to print what its page shows."""
FENCE = re.compile(r"^(`{3,})(.*)\n((?:.*\n)*?)\1$", re.MULTILINE)
PROGRESS = re.compile(r"^\w+: [\d,]+ of [\d,]+ .*\n", re.MULTILINE)
"""A line that only a run of ten seconds or more prints."""
FOLDER, CONFIG = "/home/me/project", "/home/me/.config"
"""The working directory of the examples and the folder of configurations, as pages write them."""
PARTS = re.compile(
    r"(?P<any>\s*…\s*)|(?P<space>\s+)|(?P<time>\d{4}-\d\d-\d\dT[\d:]+[+-]\d\d:\d\d)|(?P<device>(?<=embedded on )cpu)"
    r"|(?P<match>, (?:strong|possible|weak) match(?=\)))"
    r"|(?P<decimal>(?<![\w.])[+-]?\d+\.\d+(?!\w|\.\d))|(?P<number>(?<![\w.])\d[\d,]*)"
)
VARIES = {
    "any": r".*?",
    "space": r"\s+",
    "time": r"\d{4}-\d\d-\d\dT[\d:]+[+-]\d\d:\d\d",
    "device": r"[\w:,]+",
    "decimal": r"[+-]?[\d,]+\.\d+",
}
"""What stands for a part of an output that differs between two runs."""
VARIES_WITH_THE_DOCS = {**VARIES, "number": r"\d[\d,]*", "match": r"(?:, \w+ match)?"}
"""The same if the documentation itself is searched, because each edit of a page changes counts and lines."""


def fenced(page: Path, languages: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of ``languages`` (``a|b``), each with its language."""
    found = [(match[2], match[3]) for match in FENCE.finditer(page.read_text(encoding="utf-8"))]
    return [(language, block) for language, block in found if language in languages.split("|")]


def commands(block: str) -> list[str]:
    """Return what follows ``ragembed`` in each command of a block; a command that goes on in the next line is one."""
    return re.findall(r"^(?:\$ )?ragembed (.*)$", re.sub(r"\\\n\s*", "", block), re.MULTILINE)


def is_shown(shown: str, printed: str, varies: dict[str, str], *, whole: bool = True) -> bool:
    """Return whether ``printed`` is what a page shows: word by word, except for what varies and for ``…``."""
    pattern, end = "", 0
    shown = shown.strip()
    for part in PARTS.finditer(shown):
        pattern += re.escape(shown[end : part.start()]) + varies.get(part.lastgroup or "", re.escape(part[0]))
        end = part.end()
    pattern += re.escape(shown[end:])
    return re.match(f"{pattern}{'$' if whole else ''}", printed.strip(), re.DOTALL) is not None


class Reader:
    """A reader with a Python session and a terminal in one folder, who tries what a page shows."""

    def __init__(self, page: Path, folder: Path) -> None:
        self._page, self._folder = page, folder
        text = page.read_text(encoding="utf-8")
        self._varies = VARIES_WITH_THE_DOCS if re.search(r"^\$ ragembed index docs\b", text, re.MULTILINE) else VARIES
        self._namespace: dict[str, Any] = {"__name__": page.stem}
        self._printed = ""
        self._servers: list[tuple[subprocess.Popen[bytes], Path]] = []
        self._address = ""

    def read(self) -> None:
        """Run all blocks in order. A ``text`` block is only text, unless it calls a tool of the MCP server."""
        try:
            for language, block in fenced(self._page, "python|console|output|text"):
                getattr(self, f"_{language}")(block)
        finally:
            for server, _ in self._servers:
                server.kill()
                server.wait()

    def _python(self, block: str) -> None:
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, str(self._page), "exec"), self._namespace)
        self._printed = printed.getvalue()

    def _console(self, block: str) -> None:
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.sub(r"\\\n\s*", "", block), re.MULTILINE):
            words = shlex.split(command)
            assert words[0] in ("ragembed", "curl"), command
            if words[0] == "curl":
                self._curl(words)
            elif words[1] == "serve" or "--watch" in words:
                self._serve(words[1:], shown)
                continue
            else:
                self._ragembed(words[1:], command, shown)
            if shown.strip():
                self._compare(shown, command)

    def _output(self, block: str) -> None:
        self._compare(block, "the block above it")

    def _text(self, block: str) -> None:
        if call := re.fullmatch(r"([a-z_]+) (\{.*\})\s*", block):
            self._printed = asyncio.run(self._tool(call[1], json.loads(call[2])))

    def _ragembed(self, words: list[str], command: str, shown: str) -> None:
        from ragembed.cli import main

        done = CliRunner().invoke(main, words)
        self._printed = done.output
        failed = done.exception if not isinstance(done.exception, SystemExit) else None
        if failed is not None or (done.exit_code and not shown.strip()):
            raise AssertionError(f"{self._page}: {command}\n{done.output}") from failed

    def _serve(self, words: list[str], shown: str) -> None:
        """Start a server, which runs until the end of the page, and wait for what it prints first."""
        if words[0] == "serve":
            words = [*words, "--port", "0"]
        log = self._folder.parent / f"server-{len(self._servers)}.log"
        with log.open("wb") as file:
            server = subprocess.Popen([sys.executable, "-m", "ragembed", *words], stdout=file, stderr=file)
        self._servers.append((server, log))
        ending = time.monotonic() + SECONDS
        shown = shown.replace(":8765", ":…")
        while not is_shown(shown, printed := self._as_written(log.read_text("utf-8")), self._varies, whole=False):
            assert time.monotonic() < ending, self._differs(shown, printed, " ".join(words))
            time.sleep(0.05)
        if address := re.search(r"http://127\.0\.0\.1:\d+", printed):
            self._address = address[0]

    def _curl(self, words: list[str]) -> None:
        if shutil.which("curl") is None:
            pytest.skip("curl is not installed")
        words = [word.replace("http://127.0.0.1:8765", self._address) for word in words]
        done = subprocess.run([*words, "--silent", "--show-error"], capture_output=True, text=True, timeout=SECONDS)
        assert not done.returncode, done.stderr
        self._printed = done.stdout

    async def _tool(self, name: str, arguments: dict[str, Any]) -> str:
        from mcp import Client

        from ragembed.serving.mcp_server import make_server

        async with Client(make_server({"project": self._folder / ".ragembed"})) as client:
            return str((await client.call_tool(name, arguments)).content[0].text)

    def _compare(self, shown: str, what: str) -> None:
        printed = self._as_written(self._printed)
        assert is_shown(shown, printed, self._varies), self._differs(shown, printed, what)

    def _as_written(self, printed: str) -> str:
        printed = PROGRESS.sub("", printed)
        return printed.replace(str(self._folder), FOLDER).replace(os.environ["XDG_CONFIG_HOME"], CONFIG)

    def _differs(self, shown: str, printed: str, what: str) -> str:
        return f"{self._page} shows something else for {what}\nshown:\n{shown}\nprinted:\n{printed}"
