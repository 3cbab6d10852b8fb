"""The index options: parsing, the report of the choice, and the settings saved in the store."""

import json

import pytest
from click import BadParameter

from ragembed.cli.options import milliseconds, share, size_in_bytes
from ragembed.indexes import Store
from ragembed.indexes.faiss_index import choose
from ragembed.indexes.faiss_index.choose import Machine
from ragembed.indexes.faiss_index.records import Budget, IndexConfig
from ragembed.indexes.storage import upkeep
from tests.conftest import WORDS

CHUNKS = 60


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Allow an approximate index for few chunks, and simulate a machine of known speed."""
    for module in (choose, upkeep):
        monkeypatch.setattr(module, "LEAST_ASKED", CHUNKS, raising=False)
    monkeypatch.setattr(upkeep, "QUERIES_PER_CHECK", 20)
    monkeypatch.setattr(choose, "measure_machine", lambda _dim: Machine(0.1, 0.1, 8 * 1024**3))
    monkeypatch.setattr(choose, "latency_ms", lambda *_: 1.0)


def text(i):
    return f"Number {i}: the {' '.join(WORDS[8 + (i * j) % 50] for j in range(1, 14))} {i}.\n"


@pytest.fixture
def corpus(in_folder):
    folder = in_folder / "docs"
    folder.mkdir()
    for i in range(CHUNKS):
        (folder / f"{i:03}.txt").write_text(text(i))
    return folder


@pytest.fixture
def index(corpus, cli, tiny_model):
    """Run ``ragembed index`` on the documents; the first run uses the tiny model."""

    def run(*args, exit_code=0):
        made = () if (corpus.parent / ".ragembed").exists() else ("--model", tiny_model)
        return cli("index", corpus, *made, *args, exit_code=exit_code)

    return run


@pytest.fixture
def store(corpus):
    def opened():
        return Store.open(corpus.parent / ".ragembed")

    return opened


def as_json(result):
    return json.loads(result.stdout)


# Values


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (size_in_bytes, "500M", 500 * 1024**2),
        (size_in_bytes, " 1.5 GiB ", 1.5 * 1024**3),
        (size_in_bytes, "20mb", 20 * 1024**2),
        (milliseconds, "5ms", 5.0),
        (milliseconds, "250 us", 0.25),
        (share, "0.98", 0.98),
        (share, "99.5 %", 0.995),
        (share, "100%", 1.0),
    ],
)
def test_sizes_times_and_shares_are_parsed(read, value, expected):
    assert read(value) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("read", "values"),
    [
        (size_in_bytes, ["", "0", "0.0M", "0.4", "-5M", "5T", "M", "5 M M", "1e6", "nan", "inf", "9" * 400 + "G"]),
        (milliseconds, ["", "0ms", "5", "-5ms", "5m", "ms", "5 ms ms", "1e3ms", "nan", "infs", "9" * 400 + "s"]),
        (share, ["", "0", "0%", "1.01", "101%", "98", "-0.5", ".98", "0.98x", "nan", "%", "one"]),
    ],
)
def test_invalid_sizes_times_and_shares_are_errors(read, values):
    for value in values:
        with pytest.raises(BadParameter, match=r"such as (20M|5ms|0\.98)"):
            read(value)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--max-memory", "lots", "expected a number above 0 with K, M or G, such as 20M"),
        ("--max-latency", "5", "expected a number above 0 with us, ms or s, such as 5ms"),
        ("--min-recall", "1.5", "expected a number above 0 and at most 1, such as 0.98"),
        (
            "--index",
            "pq",
            "expected auto, flat, fp16, sq8, hnsw, hnsw-sq8, ivf, ivf-sq8, ivf-pq, or a FAISS factory",
        ),
    ],
)
def test_invalid_index_options_exit_with_2(corpus, cli, option, value, message):
    for command in (("index", corpus), ("doctor", "--repair")):
        result = cli(*command, option, value, exit_code=2)
        assert message in result.stderr
        assert option in result.stderr or f"{value!r}" in result.stderr
        assert "Traceback" not in result.output
    assert not (corpus.parent / ".ragembed").exists()


# Output


def test_choice_of_index_is_printed_and_saved(index, cli, store):
    result = index("--max-memory", "500M", "--max-latency", "5ms", "--min-recall", "98%")
    lines = result.stderr.splitlines()
    assert result.stdout == ""
    [first] = [i for i, line in enumerate(lines) if line.startswith("index: ")]
    assert lines[first].startswith("index: flat, recall@10 1.0000 (1.0000 to 1.0000), 1 ms a query, ")
    assert "(20 pseudo-queries, 60 vectors, " in lines[first]
    budget = "5 ms a query, 524 MB, recall@10 0.98"
    assert lines[first + 1] == f"  because: flat: the first kind within the budget of {budget}"
    assert lines[first + 2].startswith("  runner-up: sq8 (about ")
    choice = store().index_choice()
    assert choice.wanted == IndexConfig(budget=Budget(500 * 1024**2, 5.0, 0.98))
    assert lines[first + 1].endswith(choice.reasons[0])
    assert lines[first + 2].endswith(choice.runner_up)
    status = cli("status").stdout
    assert f"requested: auto within {budget}" in status
    assert any(line.startswith("measured") and "recall@10 1.0000" in line for line in status.splitlines())
    assert choice.reasons[0] in status
    assert choice.runner_up in status


def test_choice_of_index_as_json(index, cli):
    result = as_json(index("--index", "ivf", "--json"))
    assert (result["index"]["kind"], result["index"]["reasons"]) == ("ivf", ["ivf was requested"])
    assert result["check"]["measurement"]["recall"]["queries"] == 20
    status = as_json(cli("status", "--json"))
    assert status["index"] == {"wanted": status["index"]["wanted"], "choice": result["index"], "check": result["check"]}
    limits = dict.fromkeys(["max_memory", "max_latency_ms", "min_recall"])
    assert status["index"]["wanted"] == {"kind": "ivf", **limits}
    assert [segment["kind"] for segment in status["segments"]] == ["ivf"]
    again = as_json(index("--json"))
    assert (again["index"], again["check"]) == (None, None)  # no new choice


# Saved settings


def test_impossible_budget_exits_with_2_and_names_closest_index(index, cli, store):
    result = index("--max-memory", "1K", exit_code=2)
    last = result.stderr.splitlines()[-1]
    assert last.startswith("Error: no index of 60 vectors of dimension 32 meets the budget of ")
    assert "the closest is sq8 with recall@10 1.0000" in last
    assert last.endswith("the documents were added, and the index was not changed")
    assert "Traceback" not in result.output
    with store() as opened:
        assert len(opened) == CHUNKS
        assert (opened.wanted_index, opened.index_choice()) == (IndexConfig(), None)
    assert cli("query", "the lock", "-k", "1").stdout
    assert as_json(index("--json"))["unchanged"] == CHUNKS
    cli("doctor", "--integrity")


def test_limits_are_saved_and_can_be_removed(index, cli, store):
    index("--max-memory", "500M", "--min-recall", "0.9")
    assert store().wanted_index == IndexConfig(budget=Budget(500 * 1024**2, None, 0.9))
    index()
    assert store().wanted_index == IndexConfig(budget=Budget(500 * 1024**2, None, 0.9))
    index("--max-latency", "0.5s")
    assert store().wanted_index == IndexConfig(budget=Budget(500 * 1024**2, 500.0, 0.9))
    cli("doctor", "--repair", "--max-memory", "none", "--min-recall", "None")
    assert store().wanted_index == IndexConfig(budget=Budget(max_latency_ms=500.0))
    index("--max-latency", "none")
    assert store().wanted_index == IndexConfig()


def test_new_kind_of_index_removes_old_limits(index, store):
    index("--max-memory", "500M")
    index("--index", "hnsw")
    assert store().wanted_index == IndexConfig("hnsw")
    index("--min-recall", "0.9")
    assert store().wanted_index == IndexConfig("hnsw", Budget(min_recall=0.9))
    index("--index", "hnsw")
    assert store().wanted_index == IndexConfig("hnsw", Budget(min_recall=0.9))
    index("--index", "auto", "--max-memory", "1G")
    assert store().wanted_index == IndexConfig(budget=Budget(max_memory=1024**3))


def test_optimize_changes_the_index(index, cli, store):
    index()
    result = cli("doctor", "--repair", "--index", "HNSW8,SQ8")
    assert "index: HNSW8,SQ8, recall@10 " in result.stderr
    assert "  because: HNSW8,SQ8 was requested" in result.stderr
    assert "\nsegments: 1 to 1; " in result.stdout
    assert store().index_choice().kind == "HNSW8,SQ8"
    assert (
        as_json(cli("doctor", "--repair", "--index", "flat", "--json"))["compaction"]["index"]["choice"]["kind"]
        == "flat"
    )
    assert [segment["kind"] for segment in store().status()["segments"]] == ["flat"]
    cli("doctor", "--integrity")


def test_missing_gpu_exits_with_2(index, cli):
    index()
    for run in (index, lambda *args, **more: cli("doctor", "--repair", *args, **more)):
        result = run("--device", "gpu:7", exit_code=2)
        assert "gpu:7" in result.stderr
        assert result.stderr.count("Error: ") == 1
        assert "Traceback" not in result.output
        run("--device", "cpu")
