"""Readers of published files, and the protocols of SentEval against independent computations."""

import json

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, PredefinedSplit, StratifiedKFold, cross_val_score

from ragembed.errors import ConfigError
from ragembed.evaluation.encoding import Encoded
from ragembed.papers import (
    LabelledTexts,
    SentencePairs,
    classification_accuracy,
    pair_features,
    read_classification,
    read_sts,
    relatedness_regression,
    split_accuracy,
)
from ragembed.papers.sentences.classification import _epochs, _perceptron
from ragembed.papers.sentences.sentence_collections import read_examples
from ragembed.papers.sentences.sentence_tasks import classification_task, similarity_task
from tests.papers.sentences.conftest import noisy, pairs

THREE = ("train", "dev", "test")
TWICE = ("train", "train", "dev", "dev", "test", "test")
SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
ORIGINALS = "A_to_B\tB_to_A\tA dog ran\tA cat ran\tFLICKR\tFLICKR"
SICK_FILE = (
    "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\tentailment_AB\tentailment_BA\t"
    "sentence_A_original\tsentence_B_original\tsentence_A_dataset\tsentence_B_dataset\tSemEval_set\n"
    f"1\tA dog runs\tA cat runs\tNEUTRAL\t3.5\t{ORIGINALS}\tTEST\n"
    f"2\tA\tNot A\tCONTRADICTION\t1\t{ORIGINALS}\tTRAIN\n3\tB\tC\tENTAILMENT\t5\t{ORIGINALS}\tTRIAL\n"
)
MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
PARTS_OF_2016 = ("answer-answer", "headlines", "plagiarism", "postediting", "question-question")
FILES = {
    "SST2": {f"sentiment-{split}": "a fine film\t1\na dull film\t0\n" for split in THREE},
    "SST5": {f"sentiment-{split}": "".join(f"{n} film {n}\n" for n in range(5)) for split in THREE},
    "TREC": {
        "train_5500.label": "DESC:manner How did serfdom end ?\nNUM:date When is caf\xe9 time ?\n",
        "TREC_10.label": "NUM:dist How far is it ?\n",
    },
    "MRPC": {
        "msr_paraphrase_train.txt": MRPC + "1\t7\t8\tA quote \" here\tIt's here\r\n0\t1\t2\tOne\tTwo\r\n",
        "msr_paraphrase_test.txt": MRPC + "0\t5\t6\tThree\tFour\r\n",
    },
    "SICK-E": {
        f"SICK_{split}.txt": SICK + "1\tA dog runs\tA cat runs\t3.5\tNEUTRAL\n2\tA\tNot A\t1\tCONTRADICTION\n"
        for split in ("train", "trial", "test_annotated")
    },
    "SICK-E, one file": {"SICK.txt": SICK_FILE},
    "STS-B": {
        f"sts-{split}.csv": 'main-news\tMSRpar\t2012\t1\t2.600\tOne "two\tThree\tsource\nm\ti\t2014\t2\t0\tFour\tFive\n'
        for split in THREE
    },
    "SCICITE": {f"{split}.jsonl": '{"string": "As in [1]", "label": "method", "id": 4}\n' for split in THREE},
    "sci-cite": {f"{split}.txt": '{"text": "As in [1]", "label": "result", "metadata": {}}\n' for split in THREE},
    "STR": {
        "sem_text_rel_ranked.csv": ',Text,Score,SourceID\r\n0,"It was ""good"", yes.\nIt was fine.",0.97,a\r\n'
        '1,"One\nTwo",0,b\r\n'
    },
    "STS13": {
        **{f"STS.input.{part}.txt": f'Say "{part}\tSecond\nNo\tYes\n' for part in ("FNWN", "headlines", "OnWN")},
        **{f"STS.gs.{part}.txt": "4.500\n0\n" for part in ("FNWN", "headlines", "OnWN")},
    },
    "STS2016": {
        **{f"STS2016.input.{part}.txt": "One\tTwo\tsource\tother\nThree\tFour\ts\to" for part in PARTS_OF_2016},
        **{f"STS2016.gs.{part}.txt": "\n3\n" for part in PARTS_OF_2016},
    },
    "CR": {"custrev.pos": "works well\ncaf\xe9\n", "custrev.neg": "broke at once\n"},
    "SUBJ": {"subj.subjective": "i like it\n", "subj.objective": "he walks\n"},
}


def publish(folder, name):
    folder.mkdir(exist_ok=True)
    for file, text in FILES[name].items():
        latin = name in ("TREC", "CR")
        (folder / file).write_bytes(text.encode("latin-1" if latin else "utf-8"))
    return folder


FILMS = ("a fine film", "a dull film")
QUESTIONS = ("How did serfdom end ?", "When is caf\xe9 time ?", "How far is it ?")
QUOTES = ('A quote " here', "One", "Three"), ("1", "0", "0"), ("It's here", "Two", "Four")
DOGS = ("A dog runs", "A") * 3, ("NEUTRAL", "CONTRADICTION") * 3, ("A cat runs", "Not A") * 3
PAIRS = ('One "two', "Four") * 3, ("Three", "Five") * 3, (2.6, 0.0) * 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SST2", LabelledTexts(FILMS * 3, ("1", "0") * 3, (), TWICE)),
        ("TREC", LabelledTexts(QUESTIONS, ("DESC", "NUM", "NUM"), (), ("train", "train", "test"))),
        ("MRPC", LabelledTexts(*QUOTES, ("train", "train", "test"))),
        ("SICK-E", LabelledTexts(*DOGS, TWICE)),
        ("STS-B", SentencePairs(*PAIRS, TWICE)),
        ("SCICITE", LabelledTexts(("As in [1]",) * 3, ("method",) * 3, (), THREE)),
        ("sci-cite", LabelledTexts(("As in [1]",) * 3, ("result",) * 3, (), THREE)),
        ("STR", SentencePairs(('It was "good", yes.', "One"), ("It was fine.", "Two"), (0.97, 0.0))),
        (
            "STS13",
            SentencePairs(
                ('Say "FNWN', "No", 'Say "headlines', "No", 'Say "OnWN', "No"), ("Second", "Yes") * 3, (4.5, 0.0) * 3
            ),
        ),
        ("STS2016", SentencePairs(("Three",) * 5, ("Four",) * 5, (3.0,) * 5)),
        ("CR", LabelledTexts(("works well", "caf\xe9", "broke at once"), ("pos", "pos", "neg"))),
        ("SUBJ", LabelledTexts(("i like it", "he walks"), ("subjective", "objective"))),
    ],
)
def test_published_files(name, expected, tmp_path):
    assert read_examples(publish(tmp_path / "data", name)) == (name, expected)


def test_relatedness_of_sick(tmp_path):
    folder = publish(tmp_path / "data", "SICK-E")
    name, found = read_examples(folder, relatedness=True)
    assert (name, found.scores[:2], found.splits[-1]) == ("SICK-R", (3.5, 1.0), "test")
    task = read_sts(folder)
    assert (task.name, task.documents) == ("SICK-R", ["A dog runs", "A", "A cat runs", "Not A"])


@pytest.mark.parametrize(("relatedness", "labels"), [(False, "labels"), (True, "scores")])
def test_sick_in_one_file(relatedness, labels, tmp_path):
    name, found = read_examples(publish(tmp_path / "data", "SICK-E, one file"), relatedness)
    expected = (3.5, 1.0, 5.0) if relatedness else ("NEUTRAL", "CONTRADICTION", "ENTAILMENT")
    assert (name, getattr(found, labels)) == ("SICK-R" if relatedness else "SICK-E", expected)
    assert found.splits == ("test", "train", "dev")


PROBING = "tr\tPAST\tHe went .\nva\tPRES\tHe goes .\nte\tPAST\tShe went .\ntr\tPRES\tShe goes .\n"


def test_probing_file(tmp_path):
    file = tmp_path / "past_present.txt"
    file.write_text(PROBING)
    assert read_examples(file) == (
        "past_present",
        LabelledTexts(
            ("He went .", "He goes .", "She went .", "She goes ."),
            ("PAST", "PRES", "PAST", "PRES"),
            (),
            ("train", "dev", "test", "train"),
        ),
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("split\tlabel\ttext\ntrian\ta\tb\n", "line 2: the split is 'trian': expected one of train, dev, test"),
        ("split\tlabel\ttext\ntrain\ta\tb\ntrain\tc\td\n", "has nothing in the split 'test'"),
        ("split\tlabel\ttext\ntrain\ta\tb\ntest\tc\td\n", "all 1 labels in the split 'train' are 'a'"),
        ("split\tlabel\ttext\ntrain\ta\tb\ntrain\tc\td\ntest\tc\td\n", "the label 'a' has 1 texts, fewer than the 10"),
        (
            "split\tscore\tsentence1\tsentence2\ntrain\t1\ta\tb\ntrain\t2\ta\tb\ntest\t1\tc\td\n",
            "nothing in the split 'dev'",
        ),
        ("split\tlabel\tsentence1\ntrain\ta\tb\n", "line 1: the header is"),
        ("label\ttext\n\tb\n", "line 2: the label is empty"),
        ("tr\tPAST\tHe went .\nnone\tPAST\tHe went .\n", "line 2: got 'none"),
    ],
)
def test_errors_of_tables_and_probing_files(content, message, tmp_path):
    file = tmp_path / "data.tsv"
    file.write_text(content)
    with pytest.raises(ConfigError) as error:
        read_classification(file)
    assert message in str(error.value)
    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("SST2", "sentiment-dev", "no class\n", "line 1: got 'no class'"),
        ("TREC", "TREC_10.label", "DESC\n", "line 1: got 'DESC': expected COARSE:fine"),
        ("MRPC", "msr_paraphrase_test.txt", "1\t7\t8\tA\tB\n", "line 1: the header is"),
        ("SICK-E", "SICK_trial.txt", SICK + "1\tA\n", "line 2: 2 fields: expected at least 5"),
        ("SICK-E, one file", "SICK.txt", SICK, "line 1"),
        ("SICK-E, one file", "SICK.txt", SICK_FILE.replace("TRIAL", "DEV"), "line 4: SemEval_set is 'DEV'"),
        ("STS-B", "sts-dev.csv", "m\ti\t2014\t2\tx\tFour\tFive\n", "line 1: the score is 'x'"),
        (
            "STS-B",
            "sts-dev.csv",
            "m\ti\t2014\t2\t7\tA\tB\nm\ti\t2014\t2\t1\tA\tB\n",
            "the score 7: with splits, scores are 0 to 5",
        ),
        ("SCICITE", "dev.jsonl", '{"label": "method"}\n', "expected the strings 'label' and 'string' or 'text'"),
        ("STS-B", "sts-train.csv", None, "has no sts-train.csv: expected all files of STS-B: sts-train.csv, sts-dev"),
        (
            "STS13",
            "STS.gs.OnWN.txt",
            "1\n",
            "STS.gs.OnWN.txt has 1 lines, STS.input.OnWN.txt has 2: expected one score",
        ),
        ("STS13", "STS.input.OnWN.txt", "One\nTwo\tThree\n", "line 1: got 'One': expected two sentences, separated by"),
        ("STR", "sem_text_rel_ranked.csv", "Text,Score\nOne,2\n", "pair 1: expected the columns Text, with two lines"),
        ("SST2", "sentiment-test", None, "has no sentiment-test: expected all files of SST: sentiment-train"),
    ],
)
def test_errors_of_published_files(name, file, content, message, tmp_path):
    folder = publish(tmp_path / "data", name)
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    with pytest.raises(ConfigError) as error:
        read_classification(folder)
    assert message in str(error.value)


def test_options_that_do_not_apply_are_errors(tmp_path):
    with pytest.raises(ConfigError, match="has labels, not scores: relatedness applies to SICK"):
        read_classification(publish(tmp_path / "sst", "SST2"), relatedness=True)
    with pytest.raises(ConfigError, match="has scores, which no 'mlp' predicts"):
        read_classification(publish(tmp_path / "sts", "STS-B"), classifier="mlp")
    with pytest.raises(ConfigError, match="unknown classifier 'svm': expected logistic or mlp"):
        classification_accuracy(np.eye(4), [0, 0, 1, 1], 2, classifier="svm")


def logistic(low, high, cv):
    return GridSearchCV(LogisticRegression(max_iter=1000), {"C": [2.0**power for power in range(low, high)]}, cv=cv)


def test_nested_cross_validation_equals_scikit_learn():
    points, labels = noisy()
    folds = StratifiedKFold(3, shuffle=True, random_state=5)
    expected = 100 * cross_val_score(logistic(-2, 4, folds), points, labels, cv=folds)
    score = classification_accuracy(points, labels, folds=3, seed=5, nested=True)
    assert score["run_accuracies"] == pytest.approx(expected)
    assert score != classification_accuracy(points, labels, folds=3, seed=5)


@pytest.mark.parametrize("dev", [True, False])
def test_given_splits_equal_scikit_learn(dev):
    points, labels = noisy(90)
    splits = np.array(["train"] * 40 + (["dev"] if dev else ["train"]) * 20 + ["test"] * 30)
    known, test = points[splits != "test"], points[splits == "test"]
    if dev:
        search = logistic(-2, 4, PredefinedSplit(np.where(splits[:60] == "train", -1, 0)))
    else:
        search = logistic(-1, 6, StratifiedKFold(4, shuffle=True, random_state=2))
    search.fit(known, labels[:60])
    chosen = search.best_params_["C"]
    model = LogisticRegression(C=chosen, max_iter=1000).fit(points[splits == "train"], labels[splits == "train"])
    found = split_accuracy(points, labels, splits.tolist(), folds=4, seed=2)
    assert found["strength"] == chosen
    assert found["dev_accuracy"] == pytest.approx(100 * search.best_score_)
    assert found["accuracy"] == pytest.approx(100 * model.score(test, labels[60:]))


@pytest.mark.slow  # the first part of a training is compared with PyTorch below
def test_perceptron_learns_what_logistic_regression_cannot():
    """The labels are the exclusive or of the signs of two dimensions."""
    generator = np.random.default_rng(1)
    points = generator.choice([-4.0, 4.0], size=(1500, 2)) + 0.3 * generator.normal(size=(1500, 2))
    labels = (points.prod(axis=1) > 0).astype(int)
    splits = ["train"] * 1300 + ["dev"] * 100 + ["test"] * 100
    assert split_accuracy(points, labels, splits)["accuracy"] < 80
    found = split_accuracy(points, labels, splits, classifier="mlp")
    assert found["accuracy"] > 95
    assert found["strength"] in (1e-5, 1e-4, 1e-3, 1e-2)


def test_perceptron_equals_torch():
    """Four epochs of one batch, with the same first weights, in PyTorch as in SentEval."""
    torch = pytest.importorskip("torch")
    points, labels = noisy(60)
    model, first = (_perceptron(0.01, 60, np.random.RandomState(4)) for _ in range(2))
    # The two programs add Adam's epsilon in different places.
    first.learning_rate_init = model.epsilon = 1e-300
    first.partial_fit(points, labels, classes=[0, 1, 2])
    for _ in range(4):
        model.partial_fit(points, labels, classes=[0, 1, 2])
    layers = torch.nn.Linear(4, 50).double(), torch.nn.Linear(50, 3).double()
    for layer, weights, bias in zip(layers, first.coefs_, first.intercepts_, strict=True):
        layer.weight.data, layer.bias.data = torch.tensor(weights.T.copy()), torch.tensor(bias.copy())
    weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
    optimizer = torch.optim.Adam([{"params": weights, "weight_decay": 0.01}, {"params": biases}], eps=0)
    for _ in range(4):
        loss = torch.nn.CrossEntropyLoss()(
            layers[1](torch.sigmoid(layers[0](torch.tensor(points)))), torch.tensor(labels)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for layer, found in zip(layers, model.coefs_, strict=True):
        np.testing.assert_allclose(found.T, layer.weight.detach().numpy(), atol=1e-6)


def test_regression_step_equals_torch():
    """The first epoch, with the same first weights and order, in PyTorch as in SentEval."""
    torch = pytest.importorskip("torch")
    first, second, scores = pairs(100)
    features = pair_features(first, second)
    targets = np.maximum(0, 1 - abs(scores[:, None] - np.arange(1, 6)))
    generator = np.random.default_rng(9)
    bound = 1 / np.sqrt(features.shape[1])
    layer = torch.nn.Linear(features.shape[1], 5)
    weights, bias = (
        generator.uniform(-bound, bound, shape).astype(np.float32) for shape in ((features.shape[1], 5), (5,))
    )
    layer.weight.data, layer.bias.data = torch.tensor(weights.T.copy()), torch.tensor(bias)
    optimizer = torch.optim.Adam(layer.parameters())
    order = generator.permutation(100)
    for batch in (order[:64], order[64:]):
        found = torch.softmax(layer(torch.tensor(features[batch], dtype=torch.float32)), dim=1)
        loss = torch.nn.MSELoss()(found, torch.tensor(targets[batch], dtype=torch.float32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    trained = next(_epochs(features, targets, seed=9))
    torch.testing.assert_close(trained.weight, layer.weight, atol=2e-6, rtol=0)
    torch.testing.assert_close(trained.bias, layer.bias, atol=2e-6, rtol=0)


@pytest.mark.slow  # the first epoch is compared with PyTorch above
def test_relatedness_is_learned():
    first, second, scores = pairs(240)
    splits = ["train"] * 160 + ["dev"] * 40 + ["test"] * 40
    found = relatedness_regression(first, second, scores, splits)
    assert found["pearson"] > 60
    distance = -np.linalg.norm(first - second, axis=1)[200:]
    assert found["spearman"] > 100 * stats.spearmanr(distance, scores[200:])[0] - 15
    assert relatedness_regression(first, second, scores, splits) == found


@pytest.mark.parametrize(
    ("scores", "splits", "message"),
    [
        ([1, 2, 3, 6], ["train", "dev", "dev", "test"], "a score is 6.0: expected 0 to 5"),
        ([1, 2, 3, 4], ["train", "train", "test", "test"], "no pair is in the split dev"),
        ([1, 2, 3, 4], ["train", "dev", "dev", "other"], "unknown split 'other': expected one of train, dev, test"),
        ([1, 2, 3, 4], ["dev", "dev", "test", "test"], "no row is in the split train"),
        ([1, 2, 3, 4], ["train"], "splits has the shape"),
    ],
)
def test_invalid_splits_are_errors(scores, splits, message):
    with pytest.raises(ConfigError, match=message):
        relatedness_regression(np.eye(4), np.eye(4), scores, splits)


def test_tasks_of_pairs_and_splits():
    points, labels = noisy(60)
    nothing = np.zeros((0, 4), dtype=np.float32)
    splits = ("train",) * 30 + ("dev",) * 10 + ("test",) * 20
    labelled = LabelledTexts(("a",) * 60, tuple(map(str, labels)), ("b",) * 60, splits)
    task = classification_task("pairs", labelled)
    assert (task.documents, task.queries) == (["a"] * 60 + ["b"] * 60, ("b",) * 60)
    encoded = Encoded(np.concatenate([points, np.zeros_like(points)]).astype(np.float32), nothing)
    found = task.measure(encoded, None)
    expected = split_accuracy(pair_features(points.astype(np.float32), np.zeros_like(points)), labels, splits)
    assert found.scores == {**expected, "train": 30, "test": 20}
    scored = SentencePairs(("a",) * 60, ("b",) * 60, tuple(labels.astype(float)), splits)
    measured = similarity_task("pairs", scored).measure(encoded, None)
    assert list(measured.scores) == ["spearman", "pearson", "pairs"]
    assert measured.scores["pairs"] == 20


def test_command_reads_splits(in_folder, cli):
    file = in_folder / "past_present.txt"
    words = {"PAST": "went", "PRES": "goes"}
    rows = [
        f"{split}\t{label}\the {word} {n}"
        for split in ("tr", "va", "te")
        for n in range(6)
        for label, word in words.items()
    ]
    file.write_text("\n".join(rows))
    found = json.loads(
        cli("papers", "eval", "classification", file, "--preset", "re", "--classifier", "mlp", "--json").stdout
    )
    assert (found["collection"], found["train"], found["test"]) == ("past_present", 12, 12)
    assert found["accuracy"] == 100.0
    folder = publish(in_folder / "sick", "SICK-E")
    found = json.loads(
        cli("papers", "eval", "classification", folder, "--preset", "re", "--relatedness", "--json").stdout
    )
    assert (found["collection"], found["pairs"]) == ("SICK-R", 2)
