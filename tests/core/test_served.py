"""Embeddings from a server: requests, faults, keys, windows and identity."""

from __future__ import annotations

import base64
import re
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.config.specs import parse_server
from ragembed.errors import ConfigError, ModelError
from ragembed.extractors.external import PROBE
from ragembed.models import served
from ragembed.models.token_counting import EstimatedTokenizer
from tests.embedding_server import EmbeddingServer, changed, cut, raw, status

TEXTS = ["the cat sleeps", "the dog runs", "a bird flies over the store", "the writer holds the lock"]


def embedder(server: EmbeddingServer, **settings: object) -> Embedder:
    return Embedder(EmbedderConfig(model=server.name, **settings))  # type: ignore[arg-type]


def unit(rows: list[list[float]]) -> np.ndarray:
    return np.array(rows, dtype=np.float32)


def test_vectors_are_those_of_the_server_in_the_order_of_the_texts(embedding_server):
    fitted = embedder(embedding_server).fit(TEXTS)
    np.testing.assert_allclose(
        fitted.encode_documents(TEXTS), unit([embedding_server.vector(text) for text in TEXTS]), atol=1e-6
    )
    assert fitted.dim == 16
    assert fitted.config.weighting == "uniform"
    assert fitted.config.max_tokens == 512


def test_prompts_are_joined_to_the_texts(embedding_server):
    fitted = embedder(embedding_server, template="passage: [X]", query_template="query: [X]").fit(TEXTS)
    embedding_server.requests.clear()
    fitted.encode_documents(["cat"])
    fitted.encode_queries(["dog"])
    assert embedding_server.texts == ["passage: cat", f"query: {PROBE}", "query: dog"]


def test_vectors_are_truncated_and_scaled(embedding_server, tmp_path):
    fitted = embedder(embedding_server, truncate_dim=4).fit(TEXTS)
    expected = unit([embedding_server.vector(text)[:4] for text in TEXTS])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.encode_documents(TEXTS), expected, atol=1e-6)
    fitted.save(tmp_path)
    assert Embedder.load(tmp_path).encode_queries(["cat"]).shape == (1, 4)


def test_texts_are_sent_in_batches_of_texts_and_tokens(embedding_server, monkeypatch):
    monkeypatch.setattr(served, "BATCH_TEXTS", 3)
    monkeypatch.setattr(served, "BATCH_TOKENS", 8)
    fitted = embedder(embedding_server).fit(TEXTS)
    fitted.encode_documents(["x"])
    embedding_server.requests.clear()
    texts = ["a b c", "a b c d e f", "c", "d", "e", "f", "a b c d e f g h i"]
    seen: list[int] = []
    vectors = fitted.raw_documents(texts, seen.append)
    sizes = sorted(len(request) for request in embedding_server.requests)
    assert sizes == [1, 1, 2, 3]
    assert sum(seen) == len(texts)
    np.testing.assert_allclose(vectors, unit([embedding_server.vector(text) for text in texts]), atol=1e-6)


@pytest.mark.parametrize(
    "faults",
    [
        [status(429, Retry_After="0.001")],
        [status(429, Retry_After="Mon, 23 Nov 2020 08:00:00 GMT")],
        [status(500), status(503)],
        [cut, status(502), cut],
        [status(400, "too many"), status(413)],
        [status(400, "too many")],
        [status(500, "input is too large to process")],
        [changed(lambda rows: rows.reverse())],
        [changed(lambda rows: [row.update(embedding=in_base64(row["embedding"])) for row in rows])],
    ],
)
def test_passing_faults_change_nothing(embedding_server, faults):
    expected = unit([embedding_server.vector(text) for text in TEXTS])
    fitted = embedder(embedding_server).fit(TEXTS)
    embedding_server.faults = list(faults)
    np.testing.assert_allclose(fitted.encode_documents(TEXTS), expected, atol=1e-6)
    assert not embedding_server.faults


def in_base64(vector: list[float]) -> str:
    return base64.b64encode(np.array(vector, dtype="<f4").tobytes()).decode()


def nan(rows: list[dict[str, object]]) -> None:
    rows[0]["embedding"][3] = float("nan")  # type: ignore[index]


def shorter(rows: list[dict[str, object]]) -> None:
    for row in rows:
        row["embedding"] = row["embedding"][:5]  # type: ignore[index]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (changed(lambda rows: rows.pop()), "returned 3 vectors for 4 texts"),
        (
            changed(lambda rows: rows[0].update(index=1)),
            r"numbered its vectors 1, 1, 2, …: expected each index from 0 to 3 once",
        ),
        (changed(nan), "returned nan as value 3 of vector"),
        (changed(lambda rows: rows[0].update(embedding=[1.0])), "vectors of 1 and 16 values"),
        (changed(lambda rows: rows[0].update(embedding=[None] * 16)), "returned nan as value 0"),
        (changed(lambda rows: rows[0].update(embedding=[{}] * 16)), "values that are no numbers: expected numbers"),
        (changed(lambda rows: rows[0].update(embedding=["x"] * 16)), "values that are no numbers"),
        (changed(lambda rows: rows[0].update(embedding=[10**400] * 16)), "values that are no numbers"),
        (changed(lambda rows: rows[0].update(embedding="abc")), "did not answer with embeddings"),
        (changed(shorter), "vectors of 5 dimensions, not 16"),
        (raw(b"<html>\x1b[31mhello"), "did not answer with embeddings .'<html> "),
        (raw(b"[" * 10_000), "did not answer with embeddings"),
        (status(401, "wrong key"), "refused a request without a key .status 401.: set RAGEMBED_API_KEY"),
        (status(404, "no such model"), "has no model 'words'.* no such model"),
        (status(301), "status 301.*give its final address"),
        (status(500, "it is\nbroken"), "failed .status 500: it is broken.: try again later; finished batches"),
        (status(429, Retry_After="7200"), "status 429"),
        (status(400, "bad text"), "refused every text: '.*': status 400: bad text"),
        (cut, "does not answer .RemoteProtocolError"),
    ],
)
def test_faults_are_one_clear_error(embedding_server, fault, message):
    fitted = embedder(embedding_server).fit(TEXTS)
    fitted.encode_documents(["x"])
    embedding_server.always = fault
    with pytest.raises((ModelError, ConfigError), match=message):
        fitted.encode_documents(TEXTS)


def test_a_server_that_never_answered_is_not_tried_again(embedding_server):
    embedding_server.stop()
    with pytest.raises(ModelError, match=r"does not answer \(ConnectError.*start it, or search by words with --mode"):
        embedder(embedding_server).fit(TEXTS)


def test_a_slow_server_times_out(embedding_server, monkeypatch):
    import httpx

    fitted = embedder(embedding_server).fit(TEXTS)
    seen = []

    def post(self: httpx.Client, url: str, *, timeout: httpx.Timeout, **_: object) -> None:
        seen.append(timeout.read)
        raise httpx.ReadTimeout("timed out")

    monkeypatch.setattr(httpx.Client, "post", post)
    monkeypatch.setenv("RAGEMBED_SERVER_TIMEOUT", "7")
    with pytest.raises(ModelError, match="ReadTimeout: timed out"):
        fitted.encode_queries(["cat"])
    assert seen == [7] * served.ATTEMPTS


def test_waits_grow_and_follow_retry_after(embedding_server, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(served, "BACKOFF", 0.5)
    fitted = embedder(embedding_server)
    soon = datetime.now(timezone.utc) + timedelta(seconds=100)
    embedding_server.faults = [
        status(500),
        status(429, Retry_After="9"),
        status(503, Retry_After=format_datetime(soon, usegmt=True)),
        status(429, Retry_After="never"),
    ]

    class Stop:
        def is_set(self) -> bool:
            return False

        def wait(self, seconds: float) -> None:
            waits.append(seconds)

    source = fitted.extractor.source  # type: ignore[attr-defined]
    source._request(["x"], Stop())
    assert waits[:2] == [0.5, 9.0]
    assert 90 < waits[2] <= 100
    assert waits[3] == 4.0


def test_long_texts_are_read_in_windows(embedding_server):
    fitted = embedder(embedding_server, max_tokens=8).fit(TEXTS)
    text = "one two three four five six seven eight nine ten"
    parts = unit(
        [embedding_server.vector("one two three four five"), embedding_server.vector("six seven eight nine ten")]
    )
    mean = parts.mean(axis=0)
    np.testing.assert_allclose(fitted.encode_documents([text, "cat"])[0], mean / np.linalg.norm(mean), atol=1e-6)


def test_a_text_that_is_too_long_for_the_server_is_halved(embedding_server):
    fitted = embedder(embedding_server).fit(TEXTS)
    text = " ".join(f"w{i}" for i in range(100))

    def too_long(handler, texts):
        return any(len(each.split()) > 60 for each in texts) and handler.answer(400, {"error": "too long"})

    embedding_server.always = too_long
    found = fitted.encode_documents(["cat", text, "dog"])
    words = text.split()
    halves = unit([embedding_server.vector(" ".join(words[:50])), embedding_server.vector(" ".join(words[50:]))])
    mean = halves.mean(axis=0)
    np.testing.assert_allclose(found[1], mean / np.linalg.norm(mean), atol=1e-6)
    np.testing.assert_allclose(found[2], unit([embedding_server.vector("dog")])[0], atol=1e-6)


def poisoned(handler, texts):
    return any("poison" in text for text in texts) and handler.answer(500, {"error": "unsupported value: NaN"})


def test_a_text_that_cannot_be_embedded_has_the_zero_vector_and_a_warning(embedding_server, caplog):
    fitted = embedder(embedding_server).fit(TEXTS)
    long = " ".join(["poison", *(f"w{i}" for i in range(99))])
    embedding_server.always = poisoned
    found = fitted.raw_documents(["cat", "poison", "dog", long])
    assert found[:2].any(axis=1).tolist() == [True, False]
    np.testing.assert_allclose(found[2], unit([embedding_server.vector("dog")])[0], atol=1e-6)
    parts = [text for text in embedding_server.texts if re.search(r"w\d", text)]
    assert sorted(" ".join(parts).split()) == sorted(long.split()[25:])  # the part with the word is left out
    assert found[3] @ unit([embedding_server.vector(" ".join(parts))])[0] > 0.9
    assert "refused a text, which gets the zero vector: 'poison': status 500: unsupported value: NaN" in caplog.text
    for message in ("returned the zero vector, or none, for 'poison'", "refused every text: 'poison'"):
        with pytest.raises(ModelError, match=message):  # the first time, the probe is sent with the text
            fitted.encode_queries(["poison"])


def test_a_zero_vector_of_the_probe_is_an_error(embedding_server):
    embedding_server.always = changed(lambda rows: [row.update(embedding=[0] * 16) for row in rows])
    with pytest.raises(ModelError, match="returned the zero vector, or none, for 'The quick brown fox"):
        embedder(embedding_server).fit(TEXTS)


def test_options_are_fields_of_each_request(embedding_server):
    embedding_server.always = lambda handler, texts: bodies.append(handler.body)
    bodies: list[dict[str, object]] = []
    model = f"{embedding_server.name}?dimensions=8&encoding_format=base64"
    Embedder(EmbedderConfig(model=model, postprocess=())).fit(TEXTS)
    assert {(body["model"], body["dimensions"], body["encoding_format"]) for body in bodies} == {("words", 8, "base64")}


@pytest.mark.parametrize("option", ["dimensions=0", "dimensions=x", "encoding_format=int8", "user=me", ""])
def test_unknown_options_are_refused(option):
    with pytest.raises(ConfigError, match=rf"the option '{option}' of the model 'm': expected dimensions=NUMBER"):
        parse_server(f"openai:m?{option or '&'}")


# Identity


def test_a_saved_embedder_knows_its_model_at_any_address(embedding_server, tmp_path):
    fitted = embedder(embedding_server, postprocess=["zscore"]).fit(TEXTS)
    fitted.save(tmp_path)
    embedding_server.requests.clear()
    again = Embedder.load(tmp_path, model=f"{embedding_server.url}/#words")
    assert again.fingerprint == fitted.fingerprint
    assert not embedding_server.requests
    np.testing.assert_allclose(again.encode_queries(["cat"]), fitted.encode_queries(["cat"]), atol=1e-6)
    embedding_server.model = "another"
    with pytest.raises(
        ModelError, match=r"not the model .* another vector for a fixed sentence, with the cosine -?0\.\d"
    ):
        Embedder.load(tmp_path).encode_queries(["cat"])
    embedding_server.dim = 8
    with pytest.raises(ModelError, match="it returns vectors of 8 dimensions, not 16"):
        Embedder.load(tmp_path).raw_documents(["cat"])


def test_prompts_window_fit_and_model_are_in_the_fingerprint(embedding_server):
    def fingerprint(texts: list[str] = TEXTS, **settings: object) -> str:
        return embedder(embedding_server, postprocess=["center"], **settings).fit(texts).fingerprint

    same = fingerprint()
    others = [fingerprint(template="passage: [X]"), fingerprint(max_tokens=64), fingerprint(TEXTS[:2])]
    assert fingerprint() == same
    embedding_server.model = "another"
    assert len({same, *others, fingerprint()}) == 5


def test_rounding_of_the_server_is_no_other_model(embedding_server, tmp_path):
    fitted = embedder(embedding_server).fit(TEXTS)
    fitted.save(tmp_path)
    exact = embedding_server.vector
    embedding_server.vector = lambda text: [round(value, 3) for value in exact(text)]
    assert Embedder.load(tmp_path).encode_queries(["cat"]).shape == (1, 16)


# Settings and keys


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": "first+last"}, "layers is 'first[+]last', but it does not apply to http"),
        ({"weighting": "idf"}, "weighting is 'idf'"),
        ({"extractor": "avg"}, "extractor is 'avg'"),
        ({"pooling": "cls"}, "pooling is 'cls'"),
        ({"template": "t4"}, "mask tokens"),
        ({"template": "a b c [X]", "max_tokens": 10}, "expected at least 11"),
        ({"dtype": "bfloat16"}, "dtype is 'bfloat16'"),
        ({"revision": "main"}, "revision is 'main'"),
        ({"truncate_dim": 17}, "truncate_dim is 17: the vectors have 16 dimensions"),
    ],
)
def test_settings_that_need_tokens_are_refused(embedding_server, settings, message):
    with pytest.raises(ConfigError, match=message):
        embedder(embedding_server, **settings).fit(TEXTS)
    assert set(embedding_server.texts) <= {PROBE}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("http://localhost:1/v1", "expected a URL and a name"),
        ("http://localhost:1/v1#", "expected a URL and a name"),
        ("http://#m", "expected a URL and a name"),
        ("http://host:x/#m", "expected a URL and a name"),
        ("openai:", "expected a name"),
        ("https://me:s3cret@host/v1#m", "contains a user name, a password or a query"),
        ("https://s3cret@host/v1#m", "contains a user name"),
        ("https://host/v1?key=s3cret#m", "contains a user name, a password or a query"),
    ],
)
def test_wrong_addresses_are_refused_without_showing_a_secret(model, message):
    with pytest.raises(ConfigError, match=message) as caught:
        EmbedderConfig(model=model)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "environment", "url"),
    [
        ("openai:m", {}, "https://api.openai.com/v1"),
        ("openai:m", {"OPENAI_BASE_URL": "https://proxy.example/v1/"}, "https://proxy.example/v1"),
        ("ollama:nomic:v1.5", {}, "http://localhost:11434/v1"),
        ("ollama:m", {"OLLAMA_HOST": "0.0.0.0:8080"}, "http://localhost:8080/v1"),
        ("ollama:m", {"OLLAMA_HOST": "box"}, "http://box:11434/v1"),
        ("ollama:m", {"OLLAMA_HOST": "https://[fe80::1]:8/"}, "https://[fe80::1]:8/v1"),
        ("HTTP://box/v1/#m", {}, "HTTP://box/v1"),
    ],
)
def test_addresses(model, environment, url, monkeypatch):
    for name in ("OPENAI_BASE_URL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    server = parse_server(model)
    assert server is not None
    assert served.ServedModel(server, 8).url == url


@pytest.mark.parametrize(
    ("model", "variable", "value"),
    [
        ("openai:m", "OPENAI_BASE_URL", "https://:s3cret@host/v1"),
        ("openai:m", "OPENAI_BASE_URL", "https://host/v1?key=s3cret"),
        ("ollama:m", "OLLAMA_HOST", "me:s3cret@host"),
        ("ollama:m", "OLLAMA_HOST", "http://[::1"),
        ("ollama:m", "OLLAMA_HOST", "host:s3cret"),
        ("ollama:m", "OLLAMA_HOST", "ftp://host"),
    ],
)
def test_wrong_addresses_in_the_environment_are_refused(model, variable, value, monkeypatch):
    monkeypatch.setenv(variable, value)
    server = parse_server(model)
    assert server is not None
    with pytest.raises(ConfigError, match=f"{variable} is not the address of a server: expected") as caught:
        served.ServedModel(server, 8)
    assert "s3cret" not in str(caught.value)


def test_a_server_on_this_machine_is_asked_without_a_proxy(embedding_server, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    served._client.cache_clear()
    assert embedder(embedding_server).fit(TEXTS).dim == 16


def test_a_wrong_proxy_is_one_error(embedding_server, monkeypatch):
    monkeypatch.setenv("http_proxy", "gopher://host")
    served._client.cache_clear()
    with pytest.raises(ConfigError, match="the proxy in the environment cannot be used"):
        embedder(embedding_server).fit(TEXTS)
    monkeypatch.delenv("http_proxy")


LOCAL = "http://127.0.0.1:9/v1#m"


@pytest.mark.parametrize(
    ("model", "environment", "key"),
    [
        (LOCAL, {"RAGEMBED_API_KEY": "own", "OPENAI_API_KEY": "theirs"}, "own"),
        (LOCAL, {"OPENAI_API_KEY": "theirs"}, None),
        (LOCAL, {"RAGEMBED_API_KEY_FILE": "key"}, "from-file"),
        ("https://host/v1#m", {"RAGEMBED_API_KEY": "own", "OPENAI_API_KEY": "theirs"}, None),
        ("https://host/v1#m", {"RAGEMBED_API_KEY": "own", "RAGEMBED_API_HOST": "host"}, "own"),
        ("https://host:8/v1#m", {"RAGEMBED_API_KEY": "own", "RAGEMBED_API_HOST": "host:8"}, "own"),
        ("https://host.evil/v1#m", {"RAGEMBED_API_KEY": "own", "RAGEMBED_API_HOST": "host"}, None),
        ("openai:m", {"OPENAI_API_KEY": "theirs", "RAGEMBED_API_KEY": "own"}, "theirs"),
        ("https://api.openai.com/v1#m", {"OPENAI_API_KEY": "theirs"}, "theirs"),
        ("https://api.openai.com.evil/v1#m", {"OPENAI_API_KEY": "theirs"}, None),
        ("http://api.openai.com/v1#m", {"OPENAI_API_KEY": "theirs"}, None),
        ("openai:m", {"RAGEMBED_API_KEY": "own"}, None),
    ],
)
def test_a_key_goes_only_to_the_host_that_it_belongs_to(model, environment, key, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("key").write_text("from-file\n")
    for name in ("RAGEMBED_API_KEY", "RAGEMBED_API_KEY_FILE", "RAGEMBED_API_HOST", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    server = parse_server(model)
    assert server is not None
    assert served.ServedModel(server, 8)._key() == key


def test_the_key_is_sent_and_never_shown(embedding_server, monkeypatch, tmp_path):
    monkeypatch.setenv("RAGEMBED_API_KEY", "s3cret")
    fitted = embedder(embedding_server).fit(TEXTS)
    assert embedding_server.headers["Authorization"] == "Bearer s3cret"
    fitted.save(tmp_path / "saved")
    assert not any(b"s3cret" in file.read_bytes() for file in (tmp_path / "saved").iterdir())
    for fault in (status(500, "the key s3cret is wrong"), status(401, "s3cret"), raw(b"s3cret")):
        embedding_server.always = fault
        with pytest.raises(ModelError) as caught:
            fitted.encode_queries(["cat"])
        assert "s3cret" not in str(caught.value)
    monkeypatch.setenv("RAGEMBED_API_KEY", "two\nlines")
    with pytest.raises(ConfigError, match="RAGEMBED_API_KEY holds no usable key: expected letters"):
        fitted.encode_queries(["cat"])


# Estimated tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("The tokens", ["The", "tokens"]),
        ("international (v1.5)", ["inte", "rnat", "ional", "(", "v1", ".", "5", ")"]),
        ("snake_case", ["snake", "_", "case"]),
        ("日本 語", ["日", "本", "語"]),
        ("naïve été", ["naïve", "été"]),
    ],
)
def test_estimated_tokens(text, tokens):
    [spans] = EstimatedTokenizer().offsets([text])
    assert [text[start:end] for start, end in spans] == tokens


def test_windows_cover_a_text_evenly():
    text = "  one two three four five six seven!  "
    parts = EstimatedTokenizer().windows(text, 3)
    assert "".join(part for part, _ in parts) == text
    assert [size for _, size in parts] == [2, 3, 3]
    assert max(len(re.findall(r"\w+|!", part)) for part, _ in parts) == 3
