"""Messages of MCP before the SDK reads them: each request gets an answer under its own id, whatever it holds.

The SDK drops what it cannot read from stdin, and answers over HTTP without an id. Half of a surrogate pair, which
JavaScript sends if it cuts an emoji, is one such text.
"""

from __future__ import annotations

import math
import os
from io import TextIOWrapper
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ragembed.serving.json_text import parsed, repaired


def refusal(text: str) -> types.JSONRPCError | None:
    """Return the answer to a text that is no message of JSON-RPC, or None for a message."""
    try:
        value = parsed(text)
    except (ValueError, RecursionError):
        return _error(None, types.PARSE_ERROR, "the message is not JSON")
    try:
        message = types.jsonrpc_message_adapter.validate_python(value, by_name=False)
        is_valid = not (isinstance(message, types.JSONRPCNotification) and "id" in value)
    except (ValidationError, RecursionError):
        is_valid = False
    if is_valid:
        return None
    expected = "expected one request or notification of JSON-RPC 2.0"
    return _error(_id_of(value), types.INVALID_REQUEST, f"the message is not valid: {expected}")


def _id_of(value: Any) -> types.RequestId | None:
    """Return the id of a request; an answer of the client has an id of the server's requests."""
    given = value.get("id") if isinstance(value, dict) and "method" in value else None
    is_id = isinstance(given, str) or (isinstance(given, int) and not isinstance(given, bool) and abs(given) < 2**63)
    return given if is_id else None


def _error(number: types.RequestId | None, code: int, message: str) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=code, message=message))


def own_stdin() -> TextIOWrapper:
    """Return the stdin of the process, and leave the null device in its place: no child process reads messages."""
    number = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return os.fdopen(number, encoding="utf-8", errors="replace")


class MessageLines(anyio.AsyncFile[str]):
    """Lines of a text file, without empty ones. Those that are no messages are left out, and answered."""

    def __init__(self, file: TextIOWrapper) -> None:
        super().__init__(file)
        # Without a limit, because a client may read the answers after it has written all lines.
        self._refused, self._refusals = anyio.create_memory_object_stream[SessionMessage](math.inf)

    async def readline(self) -> str:
        """Return the next message, or the empty text at the end of the file."""
        while line := await super().readline():
            text = repaired(line)
            if not text.strip():
                continue
            if (refused := refusal(text)) is None:
                return text
            self._refused.send_nowait(SessionMessage(refused))
        self._refused.close()
        return ""

    async def answer(self, answers: Any) -> None:
        """Send the answers to lines that are no messages until the end of the file, and close ``answers``.

        ``answers`` is a clone of the SDK's stream of answers, whose type is private.
        """
        async with answers, self._refusals:
            async for each in self._refusals:
                await answers.send(each)
