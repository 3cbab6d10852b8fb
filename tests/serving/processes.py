"""The server as a process, over stdio and over HTTP."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "ragembed", "mcp"]


def message(method: str, number: object = None, **params: Any) -> str:
    """Return a request, or a notification if there is no number."""
    named = {} if number is None else {"id": number}
    return json.dumps({"jsonrpc": "2.0", **named, "method": method, "params": params})


class StdioServer:
    """A server in ``folder`` after the handshake of the older generation of the protocol."""

    def __init__(self, folder: Path, command: Sequence[str] = COMMAND) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  a pipe that nobody reads would stop the server
        self._number = 0
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, cwd=folder
        )
        about = {"name": "test", "version": "1"}
        self.hello = self.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=about)
        self.send(message("notifications/initialized").encode())

    def send(self, line: bytes) -> None:
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its answer; every line before it must be a message too."""
        self._number += 1
        number = f"own-{self._number}"
        self.send(message(method, number, **params).encode())
        while True:
            answer = json.loads(self.process.stdout.readline())
            assert answer["jsonrpc"] == "2.0"
            if answer.get("id") == number:
                return answer

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the result of a tool."""
        return self.ask("tools/call", name=tool, arguments=arguments)["result"]

    def memory(self) -> int:
        """Return the resident memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def end(self) -> tuple[bytes, bytes]:
        """Close stdin; return what the process still wrote to stdout and stderr."""
        rest, _ = self.process.communicate(timeout=60)
        with self._errors:
            self._errors.seek(0)
            return rest, self._errors.read()


class ApiServer:
    """``ragembed serve`` in ``folder``: its address, its process, and the lines that it writes to stderr."""

    def __init__(self, folder: Path, *options: str, code: str | None = None) -> None:
        program = [sys.executable, *(["-m", "ragembed"] if code is None else ["-c", code])]
        arguments = ["serve", *options, *([] if "--uds" in options else ["--port", "0"])]
        self.process = subprocess.Popen([*program, *arguments], stderr=subprocess.PIPE, text=True, cwd=folder)
        self.log = [self.process.stderr.readline()]
        self.url = self.log[0].rstrip().rpartition(" ")[2]
        self._reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr))
        self._reader.start()

    def wait(self, line: str) -> str:
        """Return the first line of the log that contains ``line``; wait until there is one."""
        while True:
            found = [each for each in list(self.log) if line in each]
            if found or not self._reader.is_alive():
                return found[0]
            time.sleep(0.01)

    def end(self, signal_number: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        status = self.process.wait(timeout=60)
        self._reader.join()
        self.process.stderr.close()
        return status

    def __enter__(self) -> ApiServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@contextmanager
def http_server(folder: Path, code: str | None = None) -> Iterator[str]:
    """Serve ``folder`` on a free port during the ``with`` block, which gets the URL; ``code`` runs instead."""
    program = COMMAND if code is None else [sys.executable, "-c", code, "mcp"]
    process = subprocess.Popen([*program, "--http", "0"], stderr=subprocess.PIPE, text=True, cwd=folder)
    url = re.search(r"http://\S+", process.stderr.readline())[0]
    log = threading.Thread(target=process.stderr.read)  # a pipe that nobody reads would stop the server
    log.start()
    try:
        yield url
    finally:
        process.terminate()
        log.join()
        process.stderr.close()
        process.wait(timeout=60)
