"""``query --explain`` and ``query --why``."""

import json
import re

import click
import pytest

QUERY = "which lock does the writer hold?"
NAMES = "meaning", "words", "shared"
REASONS = "words", "meaning", "feedback"


def write_more(docs):
    for i, word in enumerate(("cat", "dog", "bird", "fish", "zebra", "heat", "query", "answer")):
        (docs / f"{i}.txt").write_text(f"The {word} and the {word}.\n")


@pytest.fixture
def indexed(indexed_with):
    """Enough chunks for a word in two of them to be rare."""
    return indexed_with(write_more)


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_terms_sum_to_the_score(cli, mode):
    plain = json.loads(cli("query", QUERY, "--mode", mode, "--json").stdout)["results"]
    results = json.loads(cli("query", QUERY, "--mode", mode, "--explain", "--json").stdout)["results"]
    explanations = [result.pop("explanation") for result in results]
    assert results == plain
    for result, explanation in zip(results, explanations, strict=True):
        assert sum(term["value"] for term in explanation["terms"]) == pytest.approx(result["score"], abs=1e-5)
        assert (explanation["tokens"] is None) == (mode == "lexical")
    lines = cli("query", QUERY, "--mode", mode, "--explain", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line)["explanation"] for line in lines] == explanations


@pytest.mark.usefixtures("indexed")
def test_reasons_add_up_to_the_score(cli):
    shown = cli("query", "writer lock", "-k", "1", "--alpha", "0.1", "--explain").stdout
    parts = [float(re.search(rf"^    {name} +([+-]\d\.\d\d): ", shown, re.M)[1]) for name in REASONS]
    score = float(re.search(r"\((-?\d\.\d{3})\)$", shown.split("\n")[0])[1])
    assert sum(parts) == pytest.approx(score, abs=0.02)
    assert re.search(r"words +\S+: (\w+, )*lock\b", shown)
    assert re.search(r"meaning +\S+: cosine 0\.\d\d with the query, closest words \w+, ", shown)
    assert re.search(r"feedback +\S+: one of the best candidates, and like the others, docs/\w+\.\w+:\d+-\d+, ", shown)
    assert re.search(r"^    words +\w+", cli("query", QUERY, "--mode", "lexical", "--explain").stdout, re.M)
    assert re.search(r"^    meaning +cosine 0\.", cli("query", QUERY, "--mode", "dense", "--explain").stdout, re.M)


@pytest.mark.usefixtures("indexed")
def test_explain_hybrid_score_as_text(cli):
    shown = cli("query", QUERY, "-k", "1", "--explain", "-v", "--alpha", "0.4").stdout
    assert shown.startswith("docs/locks.md")
    assert "\033" not in shown
    parts = [float(re.search(rf"^    {name} +([+-]\d\.\d+) = 0\.\d+ of", shown, re.M)[1]) for name in NAMES]
    score = float(re.search(r"\((-?\d\.\d{3})\)$", shown.split("\n")[0])[1])
    assert sum(parts) == pytest.approx(score, abs=0.002)
    assert re.search(r"moved towards docs/\w+\.\w+:\d+-\d+ [+-]\d", shown)
    assert re.search(r"BM25 .*: .*lock \d\.\d{3}", shown)
    assert re.search(r"query +[+-]\d\.\d{3}, by words: (\w+ \d\.\d{3} ← \S+(, )?)+", shown)


@pytest.mark.usefixtures("indexed")
def test_explain_other_modes_and_fusions_as_text(cli):
    assert re.search(
        r"^    cosine +[+-]0\.\d+, by words: ", cli("query", QUERY, "--mode", "dense", "--explain", "-v").stdout, re.M
    )
    shown = cli("query", QUERY, "--mode", "lexical", "--explain", "-v").stdout
    assert re.search(r"^    words +\d\.\d{3}: \w+ \d\.\d{3}", shown, re.M)
    assert "rank 1 of 11 candidates" in cli("query", QUERY, "--fusion", "rrf", "--explain", "-v").stdout
    alone = cli("query", "wing", "--path", "docs/wings.txt", "--explain", "-v").stdout
    assert ", the same for all candidates" in alone


@pytest.mark.usefixtures("indexed")
def test_explain_shades_words_in_a_terminal(cli, monkeypatch):
    monkeypatch.setattr("ragembed.cli.commands.query.for_terminal", lambda: True)
    shown = cli("query", QUERY, "-k", "1", "--mode", "dense", "--explain").stdout
    assert re.search(r"\033\[38;5;16m\033\[48;5;214m\w+\033\[0m", shown)
    plain = cli("query", QUERY, "-k", "1", "--mode", "dense", "--json").stdout
    assert json.loads(plain)["results"][0]["text"].split("\n")[0] in click.unstyle(shown)
    assert "\033[33m" in cli("query", "writer", "-k", "1", "--mode", "lexical", "--explain").stdout


def test_why_not_prints_ranks_and_words(indexed, cli):
    shown = cli("query", "writer lock", "--why", indexed / "wings.txt").stdout
    assert re.match(r"docs/wings\.txt: rank \d+.* \(hybrid; 1 chunk\)", shown)
    assert re.search(r"^  hybrid   rank \d+ of \d+ candidates, score -?\d\.\d+; result \d+ has -?\d\.\d+$", shown, re.M)
    assert re.search(r"^  dense    rank \d+ of \d+ chunks, cosine -?\d\.\d+", shown, re.M)
    assert re.search(r"^  lexical  the file contains no word of the query; result 2 has \d\.\d+$", shown, re.M)
    assert re.search(
        r"^  writer +BM25 0\.000, results \d\.\d+ on average; in \d of \d+ results, not in the file$", shown, re.M
    )
    assert "\033" not in shown


def test_why_not_as_json(indexed, cli):
    whole = json.loads(cli("query", "writer lock", "--why", indexed / "locks.md", "-k", "1", "--json").stdout)
    assert (whole["schema_version"], whole["query"], whole["path"]) == (1, "writer lock", "docs/locks.md")
    assert [standing["mode"] for standing in whole["standings"]] == ["hybrid", "dense", "lexical"]
    assert whole["standings"][2]["rank"] == 1
    assert (
        ", among the first 10 (lexical; "
        in cli("query", "lock", "--why", indexed / "locks.md", "--mode", "lexical").stdout
    )
    [line] = cli(
        "query", "writer lock", "--why", indexed / "locks.md", "-k", "1", "--format", "jsonl"
    ).stdout.splitlines()
    assert json.loads(line) == whole
    lexical = json.loads(cli("query", "wing", "--why", indexed / "locks.md", "--mode", "lexical", "--json").stdout)
    assert [phrase["phrase"] for phrase in lexical["phrases"]] == ["wing"]


def test_why_not_of_unknown_file_is_an_error(docs, cli, tiny_model):
    (docs / "empty.md").write_text("")
    (docs / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    cli("index", docs, "--model", tiny_model)
    for name, message in (
        ("broken.pdf", "docs/broken.pdf is not in the store: the last run skipped it: "),
        ("empty.md", "the last run skipped it: contains no text"),
        ("missing.md", "never indexed"),
        (".", "docs is a folder in the store: expected a file"),
    ):
        result = cli("query", "lock", "--why", docs / name, exit_code=2)
        assert message in result.stderr
        assert result.stdout == ""
    assert "the query is empty" in cli("query", " ", "--why", docs / "locks.md", exit_code=2).stderr
