"""Vectors of models behind a server with OpenAI's interface, such as Ollama, vLLM, TEI, LM Studio or OpenAI itself.

Texts are sent in batches, several at once. A request that fails for a passing reason is repeated. The key comes from
the environment and goes only to the host that it belongs to; it is in no configuration, message or file.
"""

from __future__ import annotations

import base64
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from ragembed.config.specs import Server, Template
from ragembed.errors import ConfigError, ModelError
from ragembed.extras import needed_for
from ragembed.models.token_counting import EstimatedTokenizer
from ragembed.models.vectors import checked_vectors
from ragembed.progress import check
from ragembed.types import Floats

if TYPE_CHECKING:
    import httpx

    from ragembed.extractors.external import Role

_LOG = logging.getLogger(__name__)
BATCH_TEXTS, BATCH_TOKENS = 32, 8192
"""The most texts, and the most estimated tokens, of a request. TEI refuses more than 32 texts by default."""
ATTEMPTS = 6
"""How often a request is sent before its failure counts."""
BACKOFF = 0.5
"""Seconds before the second attempt; the time doubles with each attempt."""
LONGEST_WAIT = 300.0
"""The most seconds that a server may ask to wait; a request that has to wait longer fails."""
REQUESTS_VARIABLE, TIMEOUT_VARIABLE = "RAGEMBED_SERVER_REQUESTS", "RAGEMBED_SERVER_TIMEOUT"
KEY_VARIABLE, KEY_FILE_VARIABLE, KEY_HOST_VARIABLE = "RAGEMBED_API_KEY", "RAGEMBED_API_KEY_FILE", "RAGEMBED_API_HOST"
OPENAI_KEY_VARIABLE, OPENAI_URL_VARIABLE, OLLAMA_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_HOST"

_OPENAI_URL, _OLLAMA_URL = "https://api.openai.com/v1", "http://localhost:11434"
_LOCAL = ("localhost", "127.0.0.1", "::1")
_PASSING = (408, 409, 425, 429, 500, 502, 503, 504)
_TOO_MUCH = (400, 413, 422)
_OF_A_TEXT = re.compile(r"\bNaN\b|too (large|long)|exceed|context (length|size)", re.IGNORECASE)
"""In the message of status 500: Ollama and llama.cpp say so that they cannot embed a text."""
_SHORT = 32  # tokens; a shorter text is not too long for any model, so that it was refused for another reason
_REQUESTS, _SECONDS, _CONNECTING = 4, 120, 10
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class _Piece:
    """A text, or a part of one, with its estimated number of tokens."""

    text: str
    tokens: int


class _RefusedError(Exception):
    """The server refused a request because of its texts; ``args[0]`` says how."""


class ServedModel:
    """A model behind a server. The vector of a long text is the mean of those of its parts, weighted by tokens.

    A part that the server cannot embed has the zero vector, and a warning names it.
    """

    def __init__(self, server: Server, room: int) -> None:
        self.url = _address(server)
        self.name = f"{server.model} at {self.url}"
        self._server = server
        self._room = room
        self._tokenizer = EstimatedTokenizer()
        self._answered = False

    def encode(
        self,
        texts: Sequence[str],
        role: Role,
        progress: Callable[[int], None] | None = None,
    ) -> Floats:
        """Return vectors of unit length, float32, shape ``(n, d)``, of the texts inside the template of their role.

        ``progress`` is called with the number of texts completed since the last call. Raises :class:`ModelError` if the
        server can embed none of the texts.
        """
        prompt = role.template
        windows = [self._tokenizer.windows(text, self._room) for text in texts]
        pieces = [_Piece(part, tokens) for parts in windows for part, tokens in parts]
        last_of_text = np.cumsum([len(parts) for parts in windows])
        framing = self._tokenizer.count(prompt.before + prompt.after)
        batches = [pieces[place] for place in _batches([piece.tokens + framing for piece in pieces])]
        results: list[Floats | None] = [None] * len(batches)
        done = 0
        refused: list[str] = []
        for at, vectors in self._run(batches, prompt, refused):
            results[at] = vectors
            if progress is not None:
                pieces_done = sum(len(batch) for batch, made in zip(batches, results, strict=True) if made is not None)
                now = len(texts) if pieces_done == len(pieces) else int((last_of_text <= pieces_done).sum())
                progress(now - done)
                done = now
        vectors = self._joined([made for made in results if made is not None])
        if texts and not vectors.shape[1]:
            raise ModelError(f"the server {self.url} refused every text: {refused[0]}")
        for refusal in refused:
            _LOG.warning("the server %s refused a text, which gets the zero vector: %s", self.url, refusal)
        if len(pieces) == len(texts):
            return vectors
        rows = np.split(vectors, last_of_text[:-1])
        return np.stack([_mean(own, [size for _, size in parts]) for own, parts in zip(rows, windows, strict=True)])

    def _run(
        self, batches: Sequence[Sequence[_Piece]], prompt: Template, refused: list[str]
    ) -> Iterator[tuple[int, Floats]]:
        """Yield the vectors of each batch with its number, in the order in which they arrive.

        ``refused`` gets the beginnings of texts that the server refuses, and the reasons.
        """
        if len(batches) <= 1:
            yield from ((at, self._embed(each, prompt, threading.Event(), refused)) for at, each in enumerate(batches))
            return
        # Daemon threads: an interrupted command must not wait for a slow server, as a pool of threads would.
        todo: SimpleQueue[int] = SimpleQueue()
        made: SimpleQueue[tuple[int, Floats | BaseException]] = SimpleQueue()
        stop = threading.Event()
        for at in range(len(batches)):
            todo.put(at)

        def work() -> None:
            while not stop.is_set():
                try:
                    at = todo.get_nowait()
                except Empty:
                    return
                try:
                    made.put((at, self._embed(batches[at], prompt, stop, refused)))
                except BaseException as error:  # noqa: BLE001  raised again by the caller's thread
                    made.put((at, error))

        for _ in range(min(_number(REQUESTS_VARIABLE, _REQUESTS), len(batches))):
            threading.Thread(target=work, daemon=True).start()
        try:
            for _ in batches:
                check()
                at, result = made.get()
                if isinstance(result, BaseException):
                    raise result
                yield at, result
        finally:
            stop.set()

    def _embed(self, pieces: Sequence[_Piece], prompt: Template, stop: threading.Event, refused: list[str]) -> Floats:
        """Return the vectors of ``pieces``; a refused request is sent again in halves."""
        try:
            return self._request([_sendable(f"{prompt.before}{piece.text}{prompt.after}") for piece in pieces], stop)
        except _RefusedError as error:
            middle = len(pieces) // 2
            if len(pieces) > 1:
                halves = pieces[:middle], pieces[middle:]
                return self._joined([self._embed(half, prompt, stop, refused) for half in halves])
            [piece] = pieces
            if piece.tokens < _SHORT:
                refused.append(f"{piece.text[:40]!r}: {error}")
                return np.zeros((1, 0), dtype=np.float32)
            parts = [_Piece(*part) for part in self._tokenizer.windows(piece.text, -(-piece.tokens // 2))]
            vectors = self._joined([self._embed([part], prompt, stop, refused) for part in parts])
            return _mean(vectors, [part.tokens for part in parts])[None, :]

    def _request(self, inputs: Sequence[str], stop: threading.Event) -> Floats:
        """Send one request, again if it fails for a passing reason, and return its vectors."""
        with needed_for("a model behind a server"):
            import httpx
        key = self._key()
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        body = {"model": self._server.model, "input": list(inputs), **self._server.options}
        for attempt in range(1, ATTEMPTS + 1):
            pause = BACKOFF * 2 ** (attempt - 1)
            try:
                response = _client().post(
                    f"{self.url}/embeddings",
                    json=body,
                    headers=headers,
                    timeout=httpx.Timeout(_number(TIMEOUT_VARIABLE, _SECONDS), connect=_CONNECTING, pool=None),
                )
            except (httpx.TransportError, httpx.InvalidURL, httpx.DecodingError) as error:
                problem = self._unreachable(error)
                never_started = isinstance(error, httpx.ConnectError) and not self._answered
                if never_started or not isinstance(error, httpx.TransportError):
                    raise problem from None
            else:
                self._answered = True
                if response.status_code not in _PASSING or _is_of_a_text(response):
                    return self._vectors(response, len(inputs), key)
                problem = self._failed(response, key)
                pause = max(pause, _retry_after(response.headers.get("Retry-After")))
            if attempt == ATTEMPTS or pause > LONGEST_WAIT or stop.is_set():
                raise problem
            stop.wait(pause)
        raise AssertionError("the last attempt returns or raises")

    def _vectors(self, response: httpx.Response, count: int, key: str | None) -> Floats:
        """Return the vectors in a response, in the order of the texts."""
        if response.status_code in _TOO_MUCH or _is_of_a_text(response):
            raise _RefusedError(f"status {response.status_code}{_reason(response, key)}")
        if response.status_code != 200:
            raise self._failed(response, key)
        try:
            rows = response.json()["data"]
            numbers = [row.get("index", at) for at, row in enumerate(rows)]
            vectors = [_numbers(row["embedding"]) for row in rows]
            lists = all(isinstance(vector, list) for vector in vectors)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            lists = False
        if not lists:
            raise ModelError(
                f"the server {self.url} did not answer with embeddings ({_plain(response.text, key)[:40]!r}): expected "
                "an address with OpenAI's interface, which often ends in /v1"
            )
        if len(vectors) != count:
            raise ModelError(
                f"the server {self.url} returned {len(vectors)} vectors for {count} texts: expected one for each text"
            )
        if sorted(numbers, key=str) != sorted(range(count), key=str):
            raise ModelError(
                f"the server {self.url} numbered its vectors {', '.join(map(str, numbers[:3]))}, …: expected each "
                f"index from 0 to {count - 1} once; correct the server, or let it leave out the field 'index'"
            )
        ordered = [vector for _, vector in sorted(zip(numbers, vectors, strict=True), key=lambda pair: pair[0])]
        try:
            return checked_vectors(ordered, count, self.name)
        except ConfigError as error:
            if len({len(vector) for vector in ordered}) > 1:
                raise
            raise _RefusedError(str(error)) from None
        except (TypeError, ValueError, OverflowError):
            raise ModelError(f"the server {self.url} returned values that are no numbers: expected numbers") from None

    def _joined(self, parts: Sequence[Floats]) -> Floats:
        """Return vectors of several requests together."""
        dims = sorted({part.shape[1] for part in parts} - {0})
        if len(dims) > 1:
            raise ModelError(
                f"the server {self.url} returned vectors of {' and '.join(map(str, dims))} values: expected one length"
            )
        zeros = np.zeros((1, *(dims or [0])), dtype=np.float32)  # of a refused text
        return np.concatenate([zeros[:0], *(part if part.shape[1] else zeros.repeat(len(part), 0) for part in parts)])

    def _unreachable(self, error: Exception) -> ModelError:
        reason = type(error).__name__ if not str(error) else f"{type(error).__name__}: {error}"
        return ModelError(
            f"the server {self.url} does not answer ({reason}): start it, or search by words with --mode lexical"
        )

    def _failed(self, response: httpx.Response, key: str | None) -> ModelError:
        """Return the error for a response without vectors."""
        status, reason = response.status_code, _reason(response, key)
        if status in (401, 403):
            variable = OPENAI_KEY_VARIABLE if self._is_openai else f"{KEY_VARIABLE} and {KEY_HOST_VARIABLE}"
            was = "a request without a key" if key is None else "the key"
            return ModelError(f"the server {self.url} refused {was} (status {status}): set {variable}")
        if status == 404:
            return ModelError(
                f"the server {self.url} has no model {self._server.model!r}, or no embeddings at this address (status "
                f"404{reason}): check both"
            )
        remedy = "give its final address" if 300 <= status < 400 else "try again later; finished batches are kept"
        return ModelError(f"the server {self.url} failed (status {status}{reason}): {remedy}")

    # The key

    @property
    def _is_openai(self) -> bool:
        """Whether OpenAI's key belongs to the server."""
        return self._server.kind == "openai" or self.url.startswith("https://api.openai.com/")

    def _key(self) -> str | None:
        """Return the key for this server: OpenAI's, or ragembed's for this machine and the host it is set for."""
        if self._is_openai and (key := os.environ.get(OPENAI_KEY_VARIABLE)):
            return _printable_key(key, OPENAI_KEY_VARIABLE)
        parts = urlsplit(self.url)
        if parts.hostname not in _LOCAL and os.environ.get(KEY_HOST_VARIABLE) not in (parts.hostname, parts.netloc):
            return None
        if key := os.environ.get(KEY_VARIABLE):
            return _printable_key(key, KEY_VARIABLE)
        if not (file := os.environ.get(KEY_FILE_VARIABLE)):
            return None
        try:
            return _printable_key(Path(file).read_text(encoding="utf-8").strip(), KEY_FILE_VARIABLE)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError(f"the key file {file} cannot be read: {reason}; correct {KEY_FILE_VARIABLE}") from None


def _is_of_a_text(response: httpx.Response) -> bool:
    """Return whether a failure of the server is due to a text."""
    return response.status_code == 500 and _OF_A_TEXT.search(_reason(response, None)) is not None


def _numbers(embedding: Any) -> Any:
    """Return an embedding as a list if it is in base64, which means float32 in little-endian order."""
    if not isinstance(embedding, str):
        return embedding
    return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4").tolist()


def requests(tokens: Sequence[int]) -> int:
    """Return the number of requests for texts with these estimated numbers of tokens, prompts included."""
    return sum(1 for _ in _batches(tokens))


def _printable_key(key: str, variable: str) -> str:
    if not key.isascii() or not key.isprintable() or " " in key or not key:
        raise ConfigError(f"{variable} holds no usable key: expected letters, digits and punctuation in one line")
    return key


def _address(server: Server) -> str:
    """Return the URL of the interface, without a slash at the end."""
    if server.url is not None:
        return server.url
    openai = server.kind == "openai"
    variable, default = (OPENAI_URL_VARIABLE, _OPENAI_URL) if openai else (OLLAMA_VARIABLE, _OLLAMA_URL)
    url = os.environ.get(variable) or default
    url = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or parts.scheme not in ("http", "https") or "@" in url or "?" in url:
        raise ConfigError(f"{variable} is not the address of a server: expected one such as {default}")
    if openai:
        return url.rstrip("/")
    name = "localhost" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host  # noqa: S104  where Ollama listens
    return f"{parts.scheme}://{name}:{port or 11434}/v1"


def _batches(tokens: Sequence[int]) -> Iterator[slice]:
    """Yield the places of the texts of each request, given their numbers of tokens."""
    start = total = 0
    for at, size in enumerate(tokens):
        if at > start and (at - start == BATCH_TEXTS or total + size > BATCH_TOKENS):
            yield slice(start, at)
            start, total = at, 0
        total += size
    if start < len(tokens):
        yield slice(start, len(tokens))


def _mean(vectors: Floats, weights: Sequence[int]) -> Floats:
    """Return the weighted mean of unit vectors, scaled to unit length, shape ``(d,)``."""
    mean = np.average(vectors.astype(np.float64), axis=0, weights=np.maximum(weights, 1))
    norm = np.linalg.norm(mean)
    scaled: Floats = (mean / (norm or 1.0)).astype(np.float32)
    return scaled


def _retry_after(value: str | None) -> float:
    """Return the seconds that the header ``Retry-After`` asks to wait: a number or a date; 0 for anything else."""
    seconds = value or "0"
    if re.fullmatch(r"\s*-?\d+(\.\d*)?\s*", seconds, re.ASCII):
        return max(float(seconds), 0.0)
    try:
        date = parsedate_to_datetime(seconds)
    except ValueError:
        return 0.0
    date = date if date.tzinfo is not None else date.replace(tzinfo=timezone.utc)
    return max((date - datetime.now(timezone.utc)).total_seconds(), 0.0)


def _reason(response: httpx.Response, key: str | None) -> str:
    """Return the message in a response as ``: message``, shortened and without the key, or an empty string."""
    try:
        answer: Any = response.json()
    except (ValueError, RecursionError):
        answer = response.text
    for name in ("error", "message", "detail"):
        if isinstance(answer, Mapping) and name in answer:
            answer = answer[name]
    text = _plain(answer, key) if isinstance(answer, str) else ""
    return f": {text}" if text else ""


def _plain(text: str, key: str | None) -> str:
    """Return the beginning of a server's text in one line, without the key and control characters."""
    text = text if key is None else text.replace(key, "…")
    return " ".join("".join(c if c.isprintable() else " " for c in text[:_SHOWN]).split())


def _sendable(text: str) -> str:
    """Return ``text`` with a question mark for each lone surrogate, which no server accepts."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _number(variable: str, default: int) -> int:
    """Return the whole number above 0 in an environment variable, or ``default`` if it is not set."""
    value = os.environ.get(variable) or str(default)
    if not (value.isascii() and value.isdigit()) or int(value) < 1:
        raise ConfigError(f"{variable} is {value!r}: expected a whole number above 0")
    return int(value)


@cache
def _client() -> httpx.Client:
    """Return the HTTP client of this process; a forked process makes its own, because it must not share connections.

    Redirects are not followed, and servers on this machine are asked without a proxy, so that no key goes to another
    host.
    """
    import httpx

    direct: dict[str, httpx.BaseTransport | None] = {
        f"all://[{host}]" if ":" in host else f"all://{host}": None for host in _LOCAL
    }
    try:
        return httpx.Client(follow_redirects=False, mounts=direct)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"the proxy in the environment cannot be used: {error}; correct HTTPS_PROXY") from None


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_client.cache_clear)
