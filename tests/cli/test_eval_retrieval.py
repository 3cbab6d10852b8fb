"""``ragembed eval retrieval``: collections, stores, runs and comparisons."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ragembed.cli.commands import eval as eval_command
from ragembed.indexes import Fusion, Store, apply_settings

TEXTS = {
    "d1": "the writer holds the lock of the store",
    "d2": "air flow over a wing",
    "d3": "a shock wave and a boundary layer",
    "d4": "the cat sleeps",
    "d5": "the dog runs",
    "d6": "a zebra swims",
}
QUERIES = {"q1": "who holds the lock?", "q2": "shock wave", "q3": "zebra", "q4": "cat or dog"}
JUDGED = {"q1": {"d1": 1}, "q2": {"d3": 2, "d2": 1}, "q3": {"d6": 1}, "q4": {"d4": 1, "d5": 1}}
GOOD = {"q1": ["d1", "d2"], "q2": ["d3", "d2"], "q3": ["d6"], "q4": ["d4", "d5"]}
BAD = {"q1": ["d2", "d1"], "q2": ["d1", "d2"], "q3": ["d1"], "q4": ["d1", "d4"]}
MEASURES = ["ndcg@10", "recall@100", "mrr@10", "map"]


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_run(file, rankings):
    lines = (
        f"{query} Q0 {document} {rank} {10 - rank} {file.stem}\n"
        for query, ranking in rankings.items()
        for rank, document in enumerate(ranking, 1)
    )
    file.write_text("".join(lines))
    return file


@pytest.fixture
def beir(in_folder):
    folder = in_folder / "small"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(json_lines({"_id": name, "text": text} for name, text in TEXTS.items()))
    (folder / "queries.jsonl").write_text(json_lines({"_id": name, "text": text} for name, text in QUERIES.items()))
    judged = "".join(f"{q}\t{d}\t{gain}\n" for q, gains in JUDGED.items() for d, gain in gains.items())
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq3\td6\t1\n")
    return folder


@pytest.fixture
def qrels(in_folder):
    file = in_folder / "qrels.txt"
    file.write_text("".join(f"{q} 0 {d} {gain}\n" for q, gains in JUDGED.items() for d, gain in gains.items()))
    return file


@pytest.fixture
def good(in_folder):
    return write_run(in_folder / "good.run", GOOD)


@pytest.fixture
def bad(in_folder):
    return write_run(in_folder / "bad.run", BAD)


@pytest.fixture
def queries(indexed, in_folder):
    """Judged queries for the files of a store."""
    file = in_folder / "judged.jsonl"
    rows = [
        {"query": "who holds the lock?", "relevant": ["docs/locks.md"]},
        {"_id": "wing", "query": "supersonic air flow", "relevant": {"docs/wings.txt": 2}},
    ]
    file.write_text(json_lines(rows))
    return file


@pytest.fixture
def retrieval(cli):
    def call(*args, **named):
        return cli("eval", "retrieval", *args, **named)

    return call


@pytest.fixture
def found(retrieval):
    """Call the command and return its JSON output."""

    def call(*args):
        return json.loads(retrieval(*args, "--json").stdout)

    return call


# Runs


@pytest.mark.usefixtures("nothing_is_encoded")
def test_scores_of_a_run(found, qrels, bad):
    output = found("--qrels", qrels, "--run", bad)
    assert (output["mrr@10"], output["recall@100"]) == (37.5, 50.0)
    assert (output["task"], output["collection"], output["name"], output["queries"]) == (
        "retrieval",
        "qrels",
        "bad.run",
        4,
    )
    assert (output["schema_version"], output["run"]) == (1, str(bad))


@pytest.mark.usefixtures("nothing_is_encoded")
def test_several_runs_as_table_with_differences(retrieval, beir, good, bad):
    text = retrieval(beir, "--run", good, "--run", bad).stdout.splitlines()
    assert text[0] == "small, 4 queries"
    assert text[2].split() == MEASURES
    assert text[3].split() == ["good.run", "100.0", "100.0", "100.0", "100.0"]
    assert text[4].startswith("bad.run ")
    assert text[-1].startswith("small, bad.run, ndcg@10: -")
    rows = list(csv.DictReader(io.StringIO(retrieval(beir, "--run", good, "--run", bad, "--format", "csv").stdout)))
    assert [(row["collection"], row["name"], row["queries"]) for row in rows] == [
        ("small", "good.run", "4"),
        ("small", "bad.run", "4"),
    ]
    assert rows[0]["difference_to_first.p_value"] == ""
    assert float(rows[1]["difference_to_first.difference"]) < 0
    lines = retrieval(beir, "--run", good, "--run", bad, "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["good.run", "bad.run"]


def test_missing_queries_of_a_run_count_as_0_with_a_note(retrieval, qrels, in_folder):
    run = write_run(in_folder / "part.run", {"q1": ["d1"], "q9": ["d1"]})
    result = retrieval("--qrels", qrels, "--run", run, "--json")
    assert json.loads(result.stdout)["mrr@10"] == 25.0
    assert "part.run: 3 of 4 queries are missing and count as 0: 'q2', 'q3', 'q4'" in result.stderr
    assert retrieval("--qrels", qrels, "--run", run, "--quiet").stderr == ""


def test_queries_without_relevant_document_print_a_note(retrieval, in_folder, good):
    (in_folder / "some.txt").write_text("q1 0 d1 1\nq2 0 d9 0\nq3 0 d9 0\n")
    result = retrieval("--qrels", "some.txt", "--run", good)
    assert result.stderr == "note: some: skipped 2 judged queries without a relevant document\n"
    assert result.stdout.startswith("some, 1 queries\n")


def test_unknown_documents_in_a_run_are_listed(retrieval, beir, qrels, in_folder):
    run = write_run(in_folder / "odd.run", {"q1": ["d1", "x1"], "q2": ["x2", "d3", "x1"]})
    output = retrieval(beir, "--run", run, exit_code=2)
    assert "odd.run: 2 of 4 document ids are not in the documents of small: 'x1', 'x2'" in output.stderr
    assert output.stdout == ""
    assert retrieval("--qrels", qrels, "--run", run).stdout


# Collections


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_collection_is_searched_like_a_store(found, beir, tiny_model, mode):
    model = [] if mode == "lexical" else ["--model", tiny_model, "--alpha", "0", "--feedback", 0]
    output = found(beir, "--mode", mode, *model)
    assert (output["mode"], output["queries"], output["mrr@10"]) == (mode, 4, 100.0)
    if mode == "hybrid":
        assert output["fusion"] == {
            "method": "zscore",
            "alpha": 0.0,
            "feedback": 0.0,
            "hubness": 0.5,
        }
        assert (output["name"], output["config"]["model"]) == ("minilm, hybrid", str(tiny_model))


def test_dense_search_is_the_default_for_a_collection(found, beir, tiny_model):
    output = found(beir, "--model", tiny_model)
    assert (output["mode"], output["name"], output["recall@100"]) == ("dense", "minilm", 100.0)
    assert list(output)[3:] == ["name", *MEASURES, "queries", "mode", "config"]


def test_configurations_are_compared_with_the_first(retrieval, found, beir, tiny_model):
    grid = (beir, "--model", tiny_model, "--weighting", "idf", "--weighting", "uniform")
    first, second = found(*grid)["results"]
    assert first["config"]["query_fit"] == "separate"
    assert "difference_to_first" not in first
    assert second["difference_to_first"]["difference"] == pytest.approx(second["ndcg@10"] - first["ndcg@10"])
    rows = list(csv.DictReader(io.StringIO(retrieval(*grid, "--format", "csv").stdout)))
    assert [row["weighting"] for row in rows] == ["idf", "uniform"]
    assert float(rows[1]["difference_to_first.p_value"]) == second["difference_to_first"]["p_value"]
    text = retrieval(*grid).stdout.splitlines()
    assert text[-1].startswith("small, minilm: avg. + normalize: ")
    assert " from the first, 95 % interval " in text[-1]


def test_a_single_query_has_no_interval(found, beir, tiny_model):
    grid = ("--split", "dev", "--model", tiny_model, "--weighting", "idf", "--weighting", "uniform")
    assert not any("difference_to_first" in one for one in found(beir, *grid)["results"])


@pytest.mark.usefixtures("nothing_is_encoded")
def test_beir_folder_without_judgements(retrieval, beir):
    for file in (beir / "qrels").iterdir():
        file.unlink()
    assert "small/qrels/test.tsv cannot be read: No such file" in retrieval(beir, exit_code=2).stderr


def test_run_out(retrieval, found, beir, in_folder, tiny_model):
    options = {"lexical": [], "hybrid": ["--model", tiny_model], "dense": ["--model", tiny_model]}
    for mode, more in options.items():
        searched = found(beir, "--mode", mode, *more, "--run-out", f"{mode}.run")
        read = found(beir, "--run", f"{mode}.run")
        assert [read[name] for name in MEASURES] == [searched[name] for name in MEASURES], mode
    query, q0, document, rank, score, name = (in_folder / "lexical.run").read_text().split("\n")[0].split()
    assert (query, q0, document, rank, name) == ("q1", "Q0", "d1", "1", "lexical")
    assert float(score) > 0


def test_judged_queries_beside_a_corpus(found, beir):
    (beir / "mine.jsonl").write_text(json_lines([{"query": "zebra", "relevant": ["d6"]}]))
    output = found(beir / "mine.jsonl", "--mode", "lexical")
    assert (output["collection"], output["queries"], output["mrr@10"]) == ("mine", 1, 100.0)
    (beir / "corpus.jsonl").rename(beir / "documents.jsonl")
    output = found(beir / "mine.jsonl", "--corpus", beir / "documents.jsonl", "--mode", "lexical")
    assert output["mrr@10"] == 100.0


# Stores


def test_judged_queries_search_the_nearest_store(found, queries):
    output = found(queries)
    assert (output["collection"], output["name"], output["queries"]) == ("judged", ".ragembed", 2)
    assert (output["mode"], output["fusion"]["alpha"]) == ("hybrid", 0.6)
    output = found(queries, "--store", ".ragembed", "--mode", "lexical")
    assert [output[name] for name in MEASURES] == [100.0] * 4


def test_judged_chunks(retrieval, found, indexed, cli, in_folder):
    hit = json.loads(cli("query", "supersonic", "--mode", "lexical", "--json").stdout)["results"][0]
    (in_folder / "chunks.jsonl").write_text(json_lines([{"query": "supersonic", "relevant": [hit["id"]]}]))
    assert found("chunks.jsonl", "--mode", "lexical")["mrr@10"] == 100.0
    (in_folder / "gone.jsonl").write_text(json_lines([{"query": "supersonic", "relevant": ["docs/gone.md"]}]))
    output = retrieval("gone.jsonl", exit_code=2)
    assert "gone.jsonl: 1 of 1 document ids are not in the store" in output.stderr
    assert "'docs/gone.md'" in output.stderr


def test_run_of_file_names_with_spaces_is_json_lines(found, queries, in_folder, cli):
    (in_folder / "docs" / "locks.md").rename(in_folder / "docs" / "my locks.md")
    cli("index")
    queries.write_text(queries.read_text().replace("locks.md", "my locks.md"))
    output = found(queries, "--run-out", "out.jsonl")
    assert found(queries, "--run", "out.jsonl")["map"] == output["map"]


def test_compare_stores(found, queries, cli, indexed, tiny_model):
    cli("index", indexed, "--store", "other", "--model", tiny_model, "--postprocess", "none")
    output = found(queries, "--compare", ".ragembed", "other", "--mode", "lexical")
    assert [output[side]["store"] for side in "ab"] == [".ragembed", "other"]
    assert output["differences"]["map"]["difference"] == 0.0


def test_fit_fusion_saves_a_weight_that_gains_on_queries_left_out(retrieval, found, queries, in_folder):
    def fusion():
        with Store.open(".ragembed") as store:
            return store.fusion

    worst = Fusion(alpha=1.0, feedback=0.0)
    apply_settings(Path(".ragembed"), None, worst)
    words = {"holds the lock": "docs/locks.md", "supersonic air": "docs/wings.txt", "writer lock": "docs/locks.md"}
    queries.write_text(json_lines({"query": query, "relevant": [file]} for query, file in words.items()))
    output = found(queries, "--fit-fusion", "--measures", "mrr")
    means = {line["alpha"]: line["mrr"] for line in output["alphas"]}
    assert list(means) == [n / 10 for n in range(11)]
    assert means[1.0] < means[output["best"]] == max(means.values())
    alone = found(queries, "--alpha", 1.0, "--feedback", 0.0, "--measures", "mrr")["mrr"]
    assert means[1.0] == pytest.approx(alone)
    assert (output["now"], output["saved"], output["queries"]) == (1.0, True, 3)
    assert output["gain"]["difference"] > 0
    assert fusion() == replace(worst, alpha=output["best"])
    assert retrieval(queries, "--fit-fusion").stdout.endswith(f"the store keeps alpha {output['best']:g}\n")
    rows = list(csv.DictReader(io.StringIO(retrieval(queries, "--fit-fusion", "--format", "csv").stdout)))
    assert [float(row["alpha"]) for row in rows] == list(means)


def test_fit_fusion_keeps_a_weight_that_is_best_by_chance(found, queries, monkeypatch):
    """Each query is best with another weight: none of them gains on the others."""
    best = {"who holds the lock?": 0.3, "supersonic air flow": 0.8}

    def ranked(store, texts, judged, search, depth):
        return {
            name: [(next(iter(judged.relevance[name])), 1.0)] if best[text] == search.fusion.alpha else []
            for name, text in texts.items()
        }

    monkeypatch.setattr(eval_command, "rank_in_store", ranked)
    output = found(queries, "--fit-fusion")
    assert (output["saved"], output["gain"]["difference"]) == (False, 0.0)
    assert found(queries, "--fit-fusion")["now"] == 0.6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--alpha", 0.5], "--alpha does not apply with --fit-fusion"),
        (["--compare", "dense", "hybrid"], "--compare does not apply with --fit-fusion"),
        (["--in", "all"], "--in does not apply with --fit-fusion"),
    ],
)
def test_fit_fusion_refuses_options_of_other_evaluations(retrieval, queries, options, message):
    assert message in retrieval(queries, "--fit-fusion", *options, exit_code=2).stderr


def test_fit_fusion_needs_two_judged_queries_of_a_store(retrieval, queries, beir, qrels):
    assert "expected one file of judged queries" in retrieval(beir, "--fit-fusion", exit_code=2).stderr
    assert "has judgements but no queries" in retrieval(qrels, "--fit-fusion", exit_code=2).stderr
    queries.write_text(queries.read_text().splitlines()[0] + "\n")
    assert "has one judged query" in retrieval(queries, "--fit-fusion", exit_code=2).stderr


# Comparisons


@pytest.mark.usefixtures("nothing_is_encoded")
def test_compare_runs(retrieval, found, beir, good, bad):
    output = found(beir, "--compare", bad, good)
    assert (output["collection"], output["queries"]) == ("small", 4)
    assert [output[side]["name"] for side in "ab"] == [str(bad), str(good)]
    assert list(output["differences"]) == MEASURES
    mrr = output["differences"]["mrr@10"]
    assert mrr["difference"] == pytest.approx(output["b"]["mrr@10"] - output["a"]["mrr@10"])
    assert mrr["difference"] > 0
    assert mrr["low"] <= mrr["difference"] <= mrr["high"]
    assert (mrr["p_value"], mrr["significant"]) == (2 / 16, False)
    text = retrieval(beir, "--compare", bad, good).stdout.splitlines()
    assert text[0] == f"small, 4 queries: A = {bad}, B = {good}"
    assert text[-1] == "no significant difference in ndcg@10, recall@100, mrr@10, map"
    rows = list(csv.DictReader(io.StringIO(retrieval(beir, "--compare", bad, good, "--format", "csv").stdout)))
    assert [row["measure"] for row in rows] == MEASURES
    assert float(rows[2]["p_value"]) == 2 / 16


def test_significant_difference_names_the_better_system(retrieval, in_folder):
    names = [f"q{i}" for i in range(10)]
    (in_folder / "qrels.txt").write_text("".join(f"{name} 0 d1 1\n" for name in names))
    good = write_run(in_folder / "good.run", {name: ["d1"] for name in names})
    bad = write_run(in_folder / "bad.run", {name: ["d2", "d1"] for name in names})
    text = retrieval("--qrels", "qrels.txt", "--compare", good, bad).stdout.splitlines()
    assert text[-2:] == [
        "A is significantly better in ndcg@10, mrr@10, map (p < 0.05)",
        "no significant difference in recall@100",
    ]
    text = retrieval("--qrels", "qrels.txt", "--compare", bad, good, "--measures", "mrr").stdout.splitlines()
    assert text[-1] == "B is significantly better in mrr (p < 0.05)"


def test_compare_modes_settings_and_presets(found, beir, tiny_model):
    options = [beir, "--model", tiny_model]
    output = found(*options, "--compare", "lexical", "hybrid:alpha=0,feedback=0,fusion=minmax")
    assert "config" not in output["a"]
    assert output["b"]["fusion"] == {
        "method": "minmax",
        "alpha": 0.0,
        "feedback": 0.0,
        "hubness": 0.5,
    }
    assert output["differences"]["mrr@10"]["difference"] == 0.0
    output = found(beir, "--compare", "re", "dense:preset=re")
    assert output["a"]["config"] == output["b"]["config"]
    assert all(each["p_value"] == 1.0 for each in output["differences"].values())


# Errors


@pytest.mark.usefixtures("nothing_is_encoded")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "no judgements: give a BEIR folder, a file of judged queries, or --qrels"),
        (["small", "--qrels", "qrels.txt"], "got judgements from both --qrels and small: give one of them"),
        (["--qrels", "qrels.txt"], "qrels.txt has judgements but no queries: add the rankings to score with --run"),
        (["--qrels", "qrels.txt", "--compare", "dense", "lexical"], "'dense' needs the texts of the queries"),
        (["--qrels", "qrels.txt", "--run", "good.run", "--split", "dev"], "--split dev applies only to BEIR folders"),
        (["small", "--corpus", "small/corpus.jsonl"], "--corpus does not apply to a BEIR folder"),
        (["small", "--run", "good.run", "--mode", "dense"], "--mode does not apply with --run, which searches nothing"),
        (
            ["small", "--run", "good.run", "--preset", "re"],
            "--preset does not apply: runs, stores and lexical search are",
        ),
        (["small", "--mode", "dense", "--alpha", "0.3"], "apply only to hybrid search: add --mode hybrid"),
        (
            ["small", "--compare", "dense", "nope"],
            "unknown system 'nope': expected a mode (hybrid, dense, lexical), a preset (minilm",
        ),
        (["small", "--compare", "dense:alpha=0.3", "hybrid"], "'dense:alpha=0.3': alpha applies only to hybrid search"),
        (["small", "--compare", "hybrid:alpha=x", "hybrid"], "'hybrid:alpha=x': alpha is 'x': expected a number"),
        (
            ["small", "--compare", "hybrid:alpha=2", "hybrid"],
            "'hybrid:alpha=2': alpha is 2.0: expected a number from 0 (lexical only)",
        ),
        (
            ["small", "--compare", "hybrid:beta=1", "hybrid"],
            "'beta=1': expected each of alpha, feedback, hubness, fusion, preset",
        ),
        (["small", "--compare", "hybrid:fusion=sum", "hybrid"], "unknown fusion method 'sum': expected one of zscore"),
        (["small", "--compare", "lexical:preset=re", "hybrid"], "'preset' applies only to dense and hybrid search"),
        (["small", "--compare", "dense", "hybrid", "--preset", "re", "--preset", "t4"], "got 2 combinations"),
        (
            ["small", "--compare", "dense", "hybrid", "--run-out", "x"],
            "--run-out writes one run, of one system on one collection",
        ),
        (["small", "--run", "good.run", "--run-out", "x"], "--run-out applies only to searches"),
        (["small", "--run-out", "no/x"], "no/x cannot be written: the folder no does not exist"),
        (["small", "judged.jsonl"], "judged.jsonl has no documents, but other paths do"),
        (["judged.jsonl"], "no store at "),
        (["qrels.txt"], "qrels.txt has judgements but no queries: to search a store"),
        (["c.toml"], "c.toml, line 1: 3 fields: expected 4 of TREC qrels"),
        (["judged.jsonl", "--compare", "re", "dense"], "'re': a store has its own settings: compare modes"),
        (
            ["--qrels", "qrels.txt", "--run", "other.run"],
            "has none of the queries in qrels.txt: expected 'q1', 'q2', 'q3' and 1 more, found 'x'",
        ),
    ],
)
def test_invalid_combinations_are_errors_before_encoding(args, message, retrieval, beir, qrels, good, in_folder):
    (in_folder / "c.toml").write_text('weighting = "idf"\n')
    (in_folder / "judged.jsonl").write_text(json_lines([{"query": "a?", "relevant": ["d1"]}]))
    write_run(in_folder / "other.run", {"x": ["d1"]})
    result = retrieval(*args, exit_code=2)
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output
