import pytest

from ragembed.config.specs import (
    Avg,
    BertAvg,
    RandomEmbeddings,
    SbertWk,
    Transformer,
    Words,
    parse_extractor,
    parse_layers,
    parse_postprocessor,
    parse_weighting,
)
from ragembed.errors import ConfigError


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("transformer", Transformer()),
        ("avg", Avg("mapped")),
        ("avg:unseen=skip", Avg("skip")),
        ("bert+avg", BertAvg(0.5)),
        ("bert+avg:w=-1.5,unseen=skip", BertAvg(-1.5, "skip")),
        ("re:dim=300,sigma=0.2", RandomEmbeddings(300, 0.2)),
        ("words:drop=100", Words(100)),
        ("sbert-wk", SbertWk()),
        (
            "sbert-wk:window=1,importance=false,variant=released-code",
            SbertWk(window=1, importance=False, variant="released-code"),
        ),
    ],
)
def test_extractors(spec, expected):
    assert parse_extractor(spec) == expected


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("bert", "'bert': expected one of transformer, avg"),
        ("bert+avg:0.5", "option '0.5': expected w=0.5"),
        ("bert+avg:w=much", "w is 'much': expected a number"),
        ("bert+avg:w=nan", "w is nan"),
        ("bert+avg:w=1,w=2", "option 'w=2'"),
        ("re:dim=0", "dim is 0"),
        ("re:dim=1.5", "dim is '1.5': expected a whole number"),
        ("re:sigma=0", "sigma is 0.0"),
        ("words:drop=-1", "drop is -1"),
        ("avg:unseen=guess", "unseen is 'guess': expected one of mapped, skip"),
        ("transformer:w=1", "option 'w=1': expected no options"),
        ("sbert-wk:window=0", "window is 0"),
        ("sbert-wk:novelty=maybe", "novelty is 'maybe': expected true or false"),
    ],
)
def test_invalid_extractors(spec, named):
    with pytest.raises(ConfigError, match=named):
        parse_extractor(spec)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("last", (12,)),
        ("first+last", (1, 12)),
        ("0+3", (0, 3)),
        ("12+1", (1, 12)),
        ("-1", (-1,)),
        ("-1+0+2", (-1, 0, 2)),
    ],
)
def test_layers(spec, expected):
    assert parse_layers(spec, 12) == expected


def test_missing_layer():
    with pytest.raises(ConfigError, match="the model has no layer 7: expected a number from -1 to 6"):
        parse_layers("1+7", 6)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("uniform", ("uniform", None)),
        ("idf", ("idf", 1.0)),
        ("idf:0.25", ("idf", 0.25)),
        ("-biases", ("-biases", None)),
        ("sif", ("sif", 1e-3)),
        ("sif:0.1", ("sif", 0.1)),
        ("usif", ("usif", None)),
    ],
)
def test_weightings(spec, expected):
    assert parse_weighting(spec) == expected


@pytest.mark.parametrize("spec", ["idf:", "idf:nan", "idf:-0.1", "sif:0", "sif:inf", "usif:1", "uniform:", "", "IDF"])
def test_invalid_weightings(spec):
    with pytest.raises(ConfigError, match=f"weighting '{spec}'"):
        parse_weighting(spec)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("zscore", ("zscore", None)), ("abtt", ("abtt", 2)), ("abtt:7", ("abtt", 7)), ("whiten", ("whiten", None))],
)
def test_postprocessors(spec, expected):
    assert parse_postprocessor(spec) == expected


@pytest.mark.parametrize("spec", ["abtt:0", "abtt:", "whiten:x", "zscore:2", "whitening", "abtt:²"])
def test_invalid_postprocessors(spec):
    with pytest.raises(ConfigError, match="post-processor"):
        parse_postprocessor(spec)
