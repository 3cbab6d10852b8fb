"""Every table and figure runs on tiny collections; the published numbers; resuming; the command."""

import csv
import dataclasses
import json
import math
import shutil

import numpy as np
import pytest

from ragembed import EmbedderConfig
from ragembed.errors import ConfigError
from ragembed.evaluation.tasks import evaluate
from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers.reproduction import PAPERS, defsent_plus, find_item, items, reproduction_run
from ragembed.papers.reproduction.data import COLLECTIONS, PaperCollection, published, published_text, sentences
from ragembed.papers.reproduction.figures import write
from ragembed.papers.reproduction.reproduction_report import csv_text, numbers, text
from ragembed.papers.reproduction.reproduction_run import (
    MEASURED,
    Inputs,
    Item,
    Outcome,
    Reproduction,
    Value,
    reproduce,
)
from ragembed.papers.reproduction.sbert_wk import LayerCosines
from ragembed.papers.sentences.sentence_collections import SPLITS, read_scored_pairs
from ragembed.papers.sentences.sentence_tasks import read_sts
from ragembed.papers.sentences.sts import pearson
from tests.drawn import require_readable
from tests.papers.reproduction.conftest import texts

FEW = ("stsb", "SentLen", "sickr-trained")
MORE = {
    "table 1": (*FEW, "agnews", "sst2"),
    "table V": ("sst2",),
    "figure 3": (*FEW, "sts13"),
    "figure A2": ("agnews",),
}
MORE |= {"table 3": ("sts13", "sst2"), "figure A3": ("sst2",), "figure 2": ("agnews",), "table 5": ("agnews",)}
COLUMNS = {"table 4": ("T4", "BERT + Avg.", "RE"), "table 5": ("B2S-100",), "figure 4": ("T4", "BERT and RE")}
COLUMNS |= {"figure 1": ("RE", "BERT"), "figure 2": ("B2S", "RE"), "figure 3": ("T4", "RE"), "table 8": ("cls,amp",)}
ONLY = {("stankevicius2024", "figure 3"): ("stsb",), ("stankevicius2024", "table 2"): ("agnews",)}
ONLY |= {("defsent-plus", "table 4"): ("sst2",)}
"""Collections and columns to which the slower ones are restricted."""
FIGURE_1 = ("stankevicius2024", "figure 1")
TABLE_V = ("sbert-wk", "table V")
QUICK = {
    "stankevicius2024": ("table A7", "figure 1"),
    "sbert-wk": ("figure 1",),
    "defsent-plus": ("table 1",),
}
"""The others are left to make test-slow."""
ALL = [
    pytest.param(
        paper, name, marks=() if name in QUICK[paper] else pytest.mark.slow, id=f"{paper}-{name}".replace(" ", "-")
    )
    for paper in PAPERS
    for name in items(paper)
]


@pytest.fixture(scope="session")
def shared_out(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduced")


@pytest.fixture
def inputs(collections, six_blocks, word_vectors, shared_out):
    def make(out=shared_out, **more):
        given = {"word_vectors": (word_vectors,), "runs": 1, "collections": FEW, "device": "cpu", **more}
        return Inputs(collections, out, str(six_blocks), **given)

    return make


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are drawn."""
    from matplotlib.figure import Figure

    figures, save = [], Figure.savefig

    def kept(figure, *args, **options):
        figures.append(figure)
        save(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", kept)
    return figures


@pytest.mark.parametrize(("paper", "name"), ALL)
def test_every_table_and_figure_runs(paper, name, inputs, monkeypatch, request):
    pytest.importorskip("matplotlib")
    drawn = request.getfixturevalue("drawn")
    monkeypatch.setattr("ragembed.papers.reproduction.sbert_wk._OCCURRENCES", 2)
    monkeypatch.setattr("ragembed.papers.reproduction.sbert_wk._SENTENCES", 5)
    monkeypatch.setattr("ragembed.papers.reproduction.stankevicius._WEIGHTS", (-0.5, 0.5))
    appendix = name.startswith("table A")
    few = ONLY.get((paper, name), MORE.get(name, () if appendix else FEW))
    columns = ("RE",) if appendix and name not in ("table A6", "table A9") else COLUMNS.get(name, ())
    item, given = find_item(paper, name), inputs(collections=few, columns=columns)
    outcome = reproduce(item, given)
    assert outcome.values
    found = numbers(outcome)
    assert all(number.value is None or math.isfinite(number.value) for number in found)
    assert max(map(len, text(outcome, 80).splitlines())) <= 80
    files = write(outcome, given.out)
    assert [file.suffix for file in files] == [".csv", ".png"]
    assert files[1].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    require_readable(drawn[0])
    rows = list(csv.DictReader(files[0].read_text().splitlines()))
    assert {row["collection"] for row in rows} >= {"mean"}


def test_published_means_are_the_means_of_the_appendix():
    """Table 4 is the mean of tables A1 to A8 and A9 to A14, except for rounding."""
    differences = []
    for table in ("table 4", "table 5"):
        item = find_item("stankevicius2024", table)
        for row, cells in published("stankevicius2024", table).items():
            group, _, label = row.partition(": ")
            if group == "classification" or "abtt" in label:
                continue
            names = [name for name, one in COLLECTIONS.items() if one.group == group]
            differences += [item.published(row, column, names) - value for column, value in cells.items()]
    assert len(differences) == 232
    assert np.abs(differences).max() < 0.1


@pytest.mark.parametrize(
    ("paper", "table", "tolerance"),
    [
        *(("defsent-plus", "table 2", 0.04), ("defsent-plus", "table 3", 0.011), ("defsent-plus", "table 4", 0.011)),
        ("sbert-wk", "table III", 0.02),
    ],
)
def test_published_averages(paper, table, tolerance):
    """The papers average over the columns that a method has."""
    for row, cells in published(paper, table).items():
        values = [value for column, value in cells.items() if column != "average"]
        assert np.mean(values) == pytest.approx(cells["average"], abs=tolerance), row


def test_learning_rates_equal_the_printed_ones(inputs):
    """Table 5 of DefSent+, which is typed from the paper; the recipes are typed in the code."""
    found = numbers(reproduce(find_item("defsent-plus", "table 5"), inputs()))
    assert len(found) == 22
    assert [number.difference for number in found] == pytest.approx([0.0] * 22)


@pytest.mark.parametrize(
    ("table", "family", "statistic"),
    [
        ("table 2", "BERT-base", "mean of the runs"),
        ("table 6", "BERT-base", "best run"),
        ("table 6", "simcse-BERT-base", "mean of the runs"),
    ],
)
def test_statistic_of_trained_rows(table, family, statistic, inputs, monkeypatch):
    """Appendix B of DefSent+: table 6 has the best run where table 2 has the mean, and the reverse for table 3."""
    scores = [{"cls": {"stsb": 60.0}, "mean": {"stsb": 50.0}}, {"cls": {"stsb": 61.0}, "mean": {"stsb": 80.0}}]
    report = {"steps": [{"runs": [{"sts": each} for each in scores], "best": 1}]}
    monkeypatch.setattr(defsent_plus, "_family", lambda run: family)
    monkeypatch.setattr(defsent_plus, "_untrained", lambda *_: [])
    monkeypatch.setattr(defsent_plus, "_train", lambda *_: report)
    run = Reproduction(inputs())
    values = {value.value for value in find_item("defsent-plus", table).measure(run)}
    assert values == {{"best run": 80.0, "mean of the runs": 65.0}[statistic]}
    assert all(f": {statistic}, pooling mean" in note for note in run.notes)


@pytest.mark.slow  # it trains two models
def test_training_belongs_to_its_inputs(inputs, collections, six_blocks, tmp_path):
    """A training with other sentence pairs is another one; the pairs of a folder of SentEval are measured too."""
    data, folder = tmp_path / "data", tmp_path / "data" / "STS" / "STSBenchmark"
    rows = [row.split("\t", 1) for row in (collections / "sts" / "stsb.tsv").read_text().splitlines()[1:]]
    published_stsb(folder, rows)
    (data / "dictionaries").symlink_to(collections / "dictionaries")
    (data / "sts").mkdir()
    (data / "sts" / "sts13.tsv").write_bytes((collections / "sts" / "sts13.tsv").read_bytes())
    given = dataclasses.replace(inputs(tmp_path / "out", columns=("cls,amp",)), data=data)
    for name in ("sts13", "stsb"):
        outcome = reproduce(find_item("defsent-plus", "table 8"), dataclasses.replace(given, collections=(name,)))
        assert len(outcome.values) == 1
        assert {f"cls,amp: mean of {name}", "trainings of each row: 1; in the paper, 10"} <= {*outcome.notes}
    assert len(list((tmp_path / "out" / "trainings").iterdir())) == 2
    assert read_scored_pairs(tmp_path / "out" / "pairs" / "stsb.tsv")[1] == read_scored_pairs(folder)[1]


def test_numbers_equal_those_of_evaluate(inputs, collections, six_blocks, tmp_path):
    given = inputs(tmp_path, columns=("BERT",), collections=())
    found = {number.row: number for number in numbers(reproduce(find_item("stankevicius2024", "table A2"), given))}
    config = EmbedderConfig(
        model=str(six_blocks), layers="first+last", pooling="mean", weighting="idf", postprocess=("zscore",)
    )
    ((_, measured),) = evaluate(read_sts(collections / "sts" / "sts13.tsv"), [config.replace(query_fit="shared")])
    assert found["idf^W + zscore"].value == pytest.approx(measured.scores["spearman"])
    assert found["idf^W + zscore"].published == 78.2
    assert len(found) == 28  # of 35 rows; seven are for templates


def published_stsb(folder, rows):
    """Write rows of score, sentence and sentence as the three files of STS-B, by their split."""
    folder.mkdir(parents=True)
    for split in SPLITS:
        lines = [f"g\tf\t2012\t1\t{row}\n" for name, row in rows if name == split]
        (folder / f"sts-{split}.csv").write_text("".join(lines))


def test_splits_of_stsb(inputs, tmp_path):
    """Figure 3 takes the train split, figure 1 of SBERT-WK all sentences; a table without splits is refused."""
    data, words = tmp_path / "data", iter(texts(40, 5))
    sizes = {"train": (7, 4), "dev": (3, 3), "test": (2, 1)}
    rows = [
        (split, f"{5 - i % 2 if i < fives else 1}\t{next(words)}\t{next(words)}")
        for split, (count, fives) in sizes.items()
        for i in range(count)
    ]
    published_stsb(data / "STS" / "STSBenchmark", rows)
    given = dataclasses.replace(inputs(tmp_path / "out", collections=(), columns=("RE",)), data=data)
    assert reproduce(find_item("stankevicius2024", "figure 3"), given).values
    measured = [json.loads(line) for line in (given.out / MEASURED).read_text().splitlines()]
    assert {(each["positive_pairs"], each["vectors"]) for each in measured} == {(2, 14)}
    figure = find_item("sbert-wk", "figure 1")
    of_all = [value.value for value in reproduce(figure, given).values]
    (data / "sts").mkdir()
    (data / "sts" / "sts13.tsv").write_text("score\tsentence1\tsentence2\n" + "".join(f"{row}\n" for _, row in rows))
    same = reproduce(figure, dataclasses.replace(given, collections=("sts13",)))
    assert [value.value for value in same.values] == pytest.approx(of_all, abs=1e-5)
    (data / "STS").rename(data / "elsewhere")
    (data / "sts" / "sts13.tsv").rename(data / "sts" / "stsb.tsv")
    for paper, name, split in (("stankevicius2024", "figure 3", "train"), ("sbert-wk", "table I", "train")):
        with pytest.raises(ConfigError, match=rf"stsb.tsv has no pair in the split '{split}': expected train"):
            reproduce(find_item(paper, name), given)


def test_rows_of_xlnet(inputs, xlnet, monkeypatch):
    """They have their own names and numbers, and no vector of a first token."""
    for name, value in (("_SENTENCES", 5), ("_TRIALS", 1)):
        monkeypatch.setattr(f"ragembed.papers.reproduction.sbert_wk.{name}", value)
    given = dataclasses.replace(inputs(collections=("mr",), word_vectors=()), model=str(xlnet))
    found = {(number.row, number.column): number for number in numbers(reproduce(find_item(*TABLE_V), given))}
    assert {row: found[row, "MR"].published for row, _ in found} == {
        "Avg. XLNet embeddings": 81.6,
        "SBERT-WK (XLNet)": 83.6,
        "SBERT-WK (XLNet), released code": 83.6,
    }
    times = reproduce(find_item("sbert-wk", "table VIII"), dataclasses.replace(given, collections=("sts13",)))
    assert {number.row: number.published for number in numbers(times)} == {
        "XLNet": 112.49,
        "overhead of SBERT-WK, QR": 8.59,
        "overhead of SBERT-WK, SVD": 10.6,
    }


def test_rows_of_word_vectors(inputs, word_vectors, collections, tmp_path):
    """Rows have the names of the files; p-mean joins min, mean and max of all files, as computed here by NumPy."""
    lines = word_vectors.read_text().splitlines()
    files = tmp_path / "glove.6B.300d.txt", tmp_path / "crawl-300d-2M.vec", tmp_path / "mine.txt"
    for start, file in enumerate(files):  # every file lacks other words
        file.write_text("\n".join(line for i, line in enumerate(lines) if i % 3 != start) + "\n")
    given = inputs(tmp_path / "out", collections=("sts13",), word_vectors=files)
    outcome = reproduce(find_item("sbert-wk", "table III"), given)
    found = {number.row: number for number in numbers(outcome) if number.column == "STS13"}
    assert {row: each.published for row, each in found.items() if "BERT" not in row} == {
        "Avg. GloVe embeddings": 50.5,
        "SIF": 56.6,
        "Avg. FastText embeddings": 58.0,
        "SIF, FastText": None,
        "Avg. mine.txt embeddings": None,
        "SIF, mine.txt": None,
        "p-mean": 52.0,
    }
    known = [
        {word: np.array(vector, dtype=float) for word, *vector in map(str.split, file.read_text().splitlines())}
        for file in files
    ]

    def joined(sentence):
        parts = [np.array([table[word] for word in sentence.split() if word in table]) for table in known]
        return np.concatenate([operation(axis=0) for p in parts for operation in (p.min, p.mean, p.max)])

    with pytest.raises(ConfigError, match="files of word vectors have the names GloVe: expected a name for each"):
        reproduce(find_item(*TABLE_V), dataclasses.replace(given, collections=("mr",), word_vectors=files[:1] * 2))
    _, pairs = read_scored_pairs(collections / "sts" / "sts13.tsv")
    vectors = [np.stack([joined(text) for text in side]) for side in (pairs.sentences1, pairs.sentences2)]
    assert found["p-mean"].value == pytest.approx(pearson(*vectors, pairs.scores), abs=1e-3)


def test_tables_of_clustering_have_as_many_runs_as_the_paper(inputs, tmp_path):
    """Table A14 on tweets as published: ten runs of k-means by default."""
    data = tmp_path / "data"
    folder = data / "short-text-clustering-enhancement" / "data"
    folder.mkdir(parents=True)
    lines = [f"{10 * (i % 3)}\t{sentence}\n" for i, sentence in enumerate(texts(30, 7))]
    (folder / "tweet-original-order.txt").write_text("".join(lines))
    given = Inputs(data, tmp_path / "out", inputs().model, columns=("RE",), device="cpu")
    outcome = reproduce(find_item("stankevicius2024", "table A14"), given)
    measured = [json.loads(line) for line in (given.out / MEASURED).read_text().splitlines()]
    assert measured
    assert {(each["runs"], len(each["run_accuracies"])) for each in measured} == {(10, 10)}
    assert "tweet has 30 records, in the paper 2,472" in outcome.notes
    assert not any(note.startswith("k-means") for note in outcome.notes)
    assert {number.row: number.published for number in numbers(outcome)}["avg."] == 46.5


def test_contrastive_models_are_known_by_name(inputs, six_blocks, tmp_path):
    """SimCSE publishes models without the files of sentence-transformers; its row is the better of [CLS] and prompt."""
    model = tmp_path / "unsup-simcse-bert-base-uncased"
    model.symlink_to(six_blocks)
    given = dataclasses.replace(inputs(tmp_path / "out", collections=("sst2",)), model=str(model))
    outcome = reproduce(find_item("defsent-plus", "table 4"), given)
    assert {(each.row, each.published) for each in numbers(outcome) if each.column == "SST2"} == {
        ("SimCSE BERT-base", 85.5)
    }
    assert any(note.endswith(("pooling cls", "pooling prompt")) for note in outcome.notes)
    assert len((given.out / MEASURED).read_text().splitlines()) == 2


def test_row_of_a_trained_model(inputs, six_blocks, tmp_path):
    model = tmp_path / "trained"
    shutil.copytree(six_blocks, model)
    steps = [{"pooling": "cls", "entries": "amp", "ica": ica} for ica in ("none", "none", "unit-variance")]
    report = {"format": 1, "method": "defsent-plus", "model": str(six_blocks), "dictionaries": ["a", "b"]}
    report |= {"settings": {"steps": steps}, "steps": steps}
    (model / "training.json").write_text(json.dumps(report))
    given = dataclasses.replace(inputs(tmp_path / "out", collections=("sst2",)), model=str(model))
    outcome = reproduce(find_item("defsent-plus", "table 4"), given)
    row = "DefSent+ BERT-base(ICA), 3rd-(CLS,AMP)-a"
    assert {(each.row, each.published) for each in numbers(outcome) if each.column == "SST2"} == {(row, 86.55)}
    table2 = reproduce(find_item("defsent-plus", "table 2"), dataclasses.replace(given, collections=("sts13",)))
    assert {value.row for value in table2.values} == {row}
    (model / "training.json").write_text(json.dumps({**report, "method": "defsent"}))
    same = reproduce(find_item("defsent-plus", "table 4"), given)
    assert {(each.row, each.published) for each in numbers(same) if each.column == "SST2"} == {
        ("DefSent BERT-base", 87.04)
    }


def test_correlation_with_isotropy(inputs, tmp_path):
    """Figure 1: Pearson's correlation over the rows of IsoScore and the mean score, computed by NumPy."""
    given = inputs(tmp_path, columns=("RE",), collections=("sts13", "stsb", "wikitext-2"))
    found = {(number.column, number.row): number.value for number in numbers(reproduce(find_item(*FIGURE_1), given))}
    rows = [row for column, row in found if column == "RE: IsoScore"]
    points = [[found[f"RE: {name}", row] for row in rows] for name in ("IsoScore", "STS")]
    assert len(rows) == 20
    assert found["RE: STS", "Pearson correlation"] == pytest.approx(100 * np.corrcoef(points)[0, 1])


def test_measurements_are_kept_and_reused(inputs, tmp_path, monkeypatch):
    given = inputs(tmp_path, columns=("RE",), collections=())
    item = find_item("stankevicius2024", "table A2")
    first = reproduce(item, given)
    kept = (tmp_path / MEASURED).read_bytes()
    (tmp_path / MEASURED).write_bytes(kept[:-40])  # the last line is unfinished
    calls = []

    def counted(task, configs, *more):
        calls.append(len(configs))
        return evaluate(task, configs, *more)

    monkeypatch.setattr(reproduction_run, "evaluate", counted)
    assert reproduce(item, given).values == first.values
    assert calls == [1]
    assert (tmp_path / MEASURED).read_bytes() == kept
    assert reproduce(item, given).values == first.values
    assert calls == [1]


def test_damaged_measurements_are_an_error(inputs, tmp_path):
    (tmp_path / MEASURED).write_text('{"key": "a"}\n{"no": "key"}\n')
    given = inputs(tmp_path, columns=("RE",))
    with pytest.raises(ConfigError, match="line 2: no 'key', so this is no measurement: remove"):
        reproduce(find_item("stankevicius2024", "table A6"), given)


def test_folder_that_cannot_be_written_is_an_error_before_the_first_measurement(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction_run, "evaluate", None)
    (tmp_path / MEASURED).mkdir()
    with pytest.raises(OSError, match=MEASURED):
        reproduce(find_item("stankevicius2024", "table A6"), inputs(tmp_path))


def test_only_what_is_measured(inputs, tmp_path):
    given = inputs(tmp_path, columns=("RE",), collections=(), measure=False)
    item = find_item("stankevicius2024", "table A2")
    nothing = reproduce(item, given)
    assert nothing.values == ()
    assert "sts13: 28 of 28 configurations are not measured" in nothing.notes
    measured = reproduce(item, dataclasses.replace(given, measure=True))
    file = tmp_path / MEASURED
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:5]))
    some = reproduce(item, given)
    assert set(some.values) < set(measured.values)
    assert len(some.values) == 5
    assert "sts13: 23 of 28 configurations are not measured" in some.notes
    assert file.read_bytes() == b"".join(lines[:5])
    # A mean over two collections needs both.
    means = find_item("stankevicius2024", "table 5")
    both = dataclasses.replace(given, collections=("sts13", "stsb"), columns=("RE",))
    outcome = reproduce(means, both)
    assert outcome.values == ()
    assert any(note.startswith("stsb: ") for note in outcome.notes)


def test_missing_collections_are_named(inputs, tmp_path, six_blocks):
    data = tmp_path / "data"
    data.mkdir()
    outcome = reproduce(find_item("stankevicius2024", "table A4"), Inputs(data, tmp_path / "out", str(six_blocks)))
    assert outcome.values == ()
    assert write(outcome, tmp_path / "out") == []
    shown = text(outcome, None)
    assert "missing: sts15: expected test_evaluation_task2a with STS.{input,gs}.answers-forums.txt, STS." in shown
    assert "STS.{input,gs}.images.txt in the folder of the data; published at https://ixa2.si.ehu.eus/stswiki" in shown
    assert "missing: wikitext-2: expected wikitext-2 in the folder of the data" in shown


def test_every_collection_has_a_source_and_is_used():
    assert all(one.source.startswith("https://") and one.paths for one in COLLECTIONS.values())
    used = {name for paper in PAPERS for item in items(paper).values() for name in item.collections}
    assert used <= COLLECTIONS.keys()
    assert COLLECTIONS.keys() - used == {"wikitext-103"}  # static vectors; Wikitext-2 if it is missing


def test_text_shows_paper_and_difference(tmp_path):
    item = Item("p", "table 1", "a title", (), lambda _: (), lambda row, *_: {"one": 50.0}.get(row))
    values = (Value("one", "A", "x", 51.26), Value("one", "A", "y", 50.0), Value("two", "A", "x", None, "all equal"))
    missing = PaperCollection("z", "STS", "sts", ("sts/z.tsv",), "https://example.org")
    outcome = Outcome(item, "model", values, (missing,), ("a note",))
    assert text(outcome, None).splitlines() == [
        "p, table 1: a title; model model",
        "Each cell: measured (paper, measured minus paper).",
        "",
        "                     A",
        "one  50.6 (50.0, +0.6)",
        "two          undefined",
        "",
        "root mean square of the differences (numbers compared): A 0.6 (1)",
        "",
        "undefined: two, A, x: all equal",
        "collections: x, y",
        "a note",
        "missing: z: expected sts/z.tsv in the folder of the data; published at https://example.org",
    ]
    rows = list(csv.DictReader(csv_text(outcome).splitlines()))
    shown = [(row["row"], row["collection"], row["value"][:5], row["published"]) for row in rows]
    assert shown == [
        ("one", "x", "51.26", ""),
        ("one", "y", "50.0", ""),
        ("two", "x", "", ""),
        ("one", "mean", "50.62", "50.0"),
        ("two", "mean", "", ""),
    ]


def test_sentences_of_wikitext(tmp_path):
    (tmp_path / "wikitext-2").mkdir()
    (tmp_path / "wikitext-2" / "b.txt").write_text("The wing was long . It flew .\n")
    (tmp_path / "wikitext-2" / "a.txt").write_text("A first sentence here .\n\n")
    (tmp_path / "wikitext-2" / "note.md").write_text("this is not a text of the collection")
    file = sentences(tmp_path / "wikitext-2", tmp_path / "out")
    assert file.read_text().split("\n") == ["A first sentence here .", "The wing was long ."]


def test_cosines_between_layers(six_blocks):
    """Compared with transformers, one text at a time; a word of several tokens is not counted."""
    import torch
    from transformers import AutoModel

    from ragembed import Embedder

    texts = ["the lock holds zz", "a cat sleeps"]
    config = EmbedderConfig(model=str(six_blocks), pooling="mean", weighting="uniform", dtype="float32")
    tokenizer = TextTokenizer(six_blocks)
    consumer = LayerCosines(6, tokenizer)
    Embedder(config).fit_extractor(texts).extractor.model.forward("documents").run(texts, [consumer])
    model = AutoModel.from_pretrained(str(six_blocks)).eval()
    total, tokens, cat = np.zeros((7, 7)), 0, 2  # the second word of the second text, after [CLS]
    for one in texts:
        ids = [2, *tokenizer.ids([one]).tolist()[0], 3]
        with torch.no_grad():
            states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        stacked = torch.stack([state[0, 1:-1] for state in states], 1).double()
        unit = stacked / stacked.norm(dim=2, keepdim=True)
        total += (unit @ unit.transpose(1, 2)).sum(0).numpy()
        tokens += len(ids) - 2
    hops = [float(unit[cat - 1, layer] @ unit[cat - 1, layer + 1]) for layer in range(6)]
    assert consumer.variances["cat"] == pytest.approx([np.var(hops)], abs=1e-6)
    assert consumer.tokens == tokens
    np.testing.assert_allclose(consumer.total / tokens, total / tokens, atol=1e-4)
    assert "zz" not in consumer.variances
    assert {"the", "lock", "cat"} <= consumer.variances.keys()


# The command


def test_command_lists_what_it_can_run(cli, tmp_path):
    """The page reference/papers.md shows the whole list, and its test compares it."""
    (tmp_path / "SICK").mkdir()
    shown = cli("papers", "reproduce", "sbert-wk", "--list", "--figure", "3", "--data", tmp_path).stdout
    assert shown.splitlines()[:3] == [
        "sbert-wk",
        "figure 3: window and start layer",
        "  data: all of sts12, sts13, sts14, sts15, sts16; train, dev and test of stsb-trained, sicke, sst2",
    ]
    assert "missing collections:\nsts12: expected test-gold with STS.{input,gs}.MSRpar.txt" in shown
    assert "\nsicke: " not in shown
    assert "\nfigure 1: " not in shown


def test_every_item_says_what_differs():
    named = [
        (paper, name)
        for paper, names, _ in (line.split("\t") for line in published_text("differences").splitlines())
        for name in names.split(", ")
    ]
    assert {*named} == {(paper, name) for paper in PAPERS for name in items(paper)}


def test_command_prints_and_writes(cli, collections, six_blocks, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    given = ("--data", collections, "--model", six_blocks, "--column", "RE", "-q")
    result = cli(
        "papers", "reproduce", "stankevicius2024", "--table", "A2", "--figure", "1", "--collection", "sts13", *given
    )
    assert "idf^W + zscore" in result.stdout
    assert "written: reproduced/stankevicius2024/table-A2.csv" in result.stdout
    assert "figure-1.png" in result.stdout
    lines = (tmp_path / "reproduced" / "stankevicius2024" / MEASURED).read_text().splitlines()
    assert all("key" in json.loads(line) for line in lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--table", "99", "--data", "."], "stankevicius2024 has no 'table 99' to reproduce: expected one of table 1"),
        (["--table", "4"], "no folder with collections: give it with --data"),
        (["--list", "--table", "99"], "stankevicius2024 has no 'table 99' to reproduce: expected one of table 1"),
        ([], "no table or figure of a paper: give both, such as sbert-wk --table III; --list shows all"),
        (["--table", "4", "--data", ".", "--collection", "nope"], "collection is 'nope'"),
        (["--table", "A2", "--data", ".", "--column", "REE"], "table A2 has no column 'REE': expected one of T0, T4"),
        (
            ["--table", "A2", "--data", ".", "--collection", "sts12"],
            "table A2 does not use sts12: expected one of sts13",
        ),
        (
            ["--figure", "3", "--data", ".", "--collection", "agnews"],
            "figure 3 does not use agnews: expected one of sts",
        ),
    ],
)
def test_invalid_options(options, message, cli, in_folder):
    result = cli("papers", "reproduce", "stankevicius2024", *options, exit_code=2)
    assert message in result.stderr
