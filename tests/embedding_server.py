"""A server with OpenAI's interface for embeddings, on this machine, with faults that tests switch on."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

DIM = 16


class EmbeddingServer:
    """Answers ``POST /v1/embeddings`` with vectors of hashed words; texts that share words are similar.

    Attributes
    ----------
    faults
        Functions that answer the next requests instead, in order. Each gets the handler and the texts, and returns
        whether it has answered.
    requests
        The texts of each request that got vectors.
    headers
        The headers of the last request.
    """

    def __init__(self) -> None:
        self.faults: list[Callable[[_Handler, list[str]], bool]] = []
        self.always: Callable[[_Handler, list[str]], bool] | None = None
        self.requests: list[list[str]] = []
        self.headers: dict[str, str] = {}
        self.model = "words"
        self.dim = DIM
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.owner = self  # type: ignore[attr-defined]
        threading.Thread(target=self._server.serve_forever, args=(0.005,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def name(self) -> str:
        """The name of the model for ``--model``."""
        return f"{self.url}#words"

    @property
    def texts(self) -> list[str]:
        """All texts that got a vector."""
        return [text for texts in self.requests for text in texts]

    def vector(self, text: str) -> list[float]:
        total = np.zeros(self.dim)
        for word in text.lower().split():
            seed = hashlib.sha256(f"{self.model} {word}".encode()).digest()[:8]
            total += np.random.default_rng(int.from_bytes(seed, "little")).normal(size=self.dim)
        return (total / (np.linalg.norm(total) or 1.0)).tolist()

    def stop(self) -> None:
        """Stop, and close open connections."""
        self.always = _hang_up
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        owner: EmbeddingServer = self.server.owner  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        owner.headers, self.body = dict(self.headers), body
        texts = body["input"]
        if owner.always is not None and owner.always(self, texts):
            return
        if owner.faults and owner.faults.pop(0)(self, texts):
            return
        if self.path != "/v1/embeddings" or body["model"] != "words":
            self.answer(404, {"error": {"message": f"model {body['model']!r} not found"}})
            return
        owner.requests.append(texts)
        self.answer(200, vectors(owner, texts))

    def answer(self, status: int, body: Any, **headers: str) -> bool:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)
        return True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        pass


def _hang_up(handler: _Handler, texts: list[str]) -> bool:
    handler.close_connection = True
    return True


def vectors(server: EmbeddingServer, texts: list[str]) -> dict[str, Any]:
    """Return the right answer for ``texts``."""
    rows = [{"index": at, "embedding": server.vector(text)} for at, text in enumerate(texts)]
    return {"object": "list", "data": rows, "model": server.model}


def status(code: int, message: str = "", **headers: str) -> Callable[[_Handler, list[str]], bool]:
    """Answer with a status and a message."""
    return lambda handler, _: handler.answer(code, {"error": {"message": message}}, **headers)


def raw(body: bytes) -> Callable[[_Handler, list[str]], bool]:
    """Answer with these bytes."""
    return lambda handler, _: handler.answer(200, body)


def cut(handler: _Handler, texts: list[str]) -> bool:
    """Close the connection in the middle of an answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"data": [')
    handler.close_connection = True
    return True


def changed(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[_Handler, list[str]], bool]:
    """Answer with the right rows after ``change``."""

    def answer(handler: _Handler, texts: list[str]) -> bool:
        body = vectors(handler.server.owner, texts)  # type: ignore[attr-defined]
        change(body["data"])
        return handler.answer(200, body)

    return answer
