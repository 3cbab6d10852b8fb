"""``ragembed papers train`` and ``ragembed papers reverse-dictionary``: their output, errors and files."""

import json

import pytest


@pytest.fixture
def train(cli, glossary, bert, tmp_path):
    def call(*more, method="defsent-plus", **options):
        return cli(
            *("papers", "train", method, "--dictionary", glossary, "--model", bert, "--out", tmp_path / "out"),
            *("--device", "cpu", "--held-out", 4, *more),
            **options,
        )

    return call


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def test_output_shows_steps_and_next_command(train, out, pairs):
    shown = train("--recipe", "bert-base", "--steps", 2, "--ica", "none", "--runs", 2, "--sts", pairs).stdout
    assert "definitions of 24 entries, 4 held out" in shown
    rows = {line.split("  ")[0]: line for line in shown.splitlines()}
    assert {"before", "step 1", "step 2"} <= set(rows)
    assert "±" in rows["step 2"]
    assert "STS prompt" in shown
    assert "best run of the last step, by sentence pairs: seed " in shown
    assert f"--model {out} --" in shown


def test_json_is_the_report(train, out):
    shown = json.loads(train("--learning-rate", 1e-4, "--combination", "mean,ac", "--steps", 1, "--json").stdout)
    assert shown["schema_version"] == 1
    written = json.loads((out / "training.json").read_text())
    assert {name: shown[name] for name in written} == written
    assert written["steps"][0]["space"]["ica"] == "unit-variance"
    assert written["settings"]["steps"] == [
        {"pooling": "mean", "entries": "ac", "learning_rate": 1e-4, "ica": "unit-variance"}
    ]


def test_settings_of_the_optimizer(train, out):
    train(
        *("--steps", 1, "--ica", "none", "--weight-decay", 0.1, "--eps", 1e-8, "--betas", 0.8, 0.9),
        *("--warmup", 0.1, "--max-grad-norm", 2, "--batch-size", 5, "--bf16", "--seed", 9, "-q"),
    )
    settings = json.loads((out / "training.json").read_text())["settings"]
    assert settings["optimizer"] == {
        "weight_decay": 0.1,
        "eps": 1e-8,
        "betas": [0.8, 0.9],
        "warmup": 0.1,
        "max_grad_norm": 2.0,
    }
    assert (settings["batch_size"], settings["bf16"], settings["seed"]) == (5, True, 9)


def test_defsent(train, out):
    report = json.loads(train("--pooling", "mean", "--json", method="defsent").stdout)
    assert report["method"] == "defsent"
    assert report["head"] == "masked-words"
    assert report["statistics"]["entries"] == 22  # two entries are not single tokens
    assert report["settings"]["steps"][0]["entries"] == "words"


def test_errors_are_one_line(train, cli, tmp_path):
    assert "such as cls,amp" in train("--combination", "max,amp", exit_code=2).stderr
    assert "max_tokens is 99: expected at most 34" in train("--max-tokens", 99, exit_code=2).stderr
    wrong = tmp_path / "wrong.tsv"
    wrong.write_text("okapi\t\n")
    errors = train("--dictionary", wrong, exit_code=2).stderr
    assert "Error: " in errors
    assert "the entry 'okapi' has no definition" in errors
    assert "Traceback" not in errors


def test_reverse_dictionary(train, cli, out):
    train("--steps", 1, "--ica", "none", "-q")
    lines = cli("papers", "reverse-dictionary", out, "a red bird", "-k", 3, "--device", "cpu").stdout.splitlines()
    assert len(lines) == 3
    found = json.loads(cli("papers", "reverse-dictionary", out, "a red bird", "--json").stdout)["entries"]
    assert lines[0].endswith(found[0]["entry"])
    listed = cli("papers", "reverse-dictionary", out, "a red bird", "--format", "jsonl", "-k", 2).stdout.splitlines()
    assert [json.loads(line)["entry"] for line in listed] == [each["entry"] for each in found[:2]]
    report = json.loads((out / "training.json").read_text())["steps"][0]["runs"][0]["held_out"]
    measured = json.loads(
        cli("papers", "reverse-dictionary", out, "--evaluate", out / "held-out.jsonl", "--json").stdout
    )
    assert {name: measured[name] for name in report} == pytest.approx(report)
    assert cli("papers", "reverse-dictionary", out, "--evaluate", out / "held-out.jsonl").stdout.startswith("top-1 ")
    assert "give either TEXT or --evaluate" in cli("papers", "reverse-dictionary", out, exit_code=2).stderr
