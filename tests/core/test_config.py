import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.config.settings import EmbedderConfig
from ragembed.errors import ConfigError

CONFIGS = st.builds(
    EmbedderConfig,
    extractor=st.sampled_from(["transformer", "bert+avg:w=-0.5", "avg:unseen=skip"]),
    model=st.text(min_size=1),
    layers=st.sampled_from(["last", "first+last", "-1+0+12"]),
    weighting=st.sampled_from(["uniform", "idf:0.25", "sif:0.01", "usif"]),
    postprocess=st.lists(st.sampled_from(["abtt:3", "whiten", "quantile-u", "normalize"]), max_size=3).map(tuple),
    query_fit=st.sampled_from(["shared", "separate"]),
    max_tokens=st.none() | st.integers(8, 512),
    special_tokens=st.none() | st.booleans(),
    seed=st.integers(0, 2**31),
)


@given(CONFIGS)
def test_json_and_toml_round_trip(config):
    assert EmbedderConfig.from_json(config.to_json()) == config
    assert EmbedderConfig.from_toml(config.to_toml()) == config
    assert EmbedderConfig.from_dict(config.to_dict()) == config


def test_missing_fields_get_their_defaults():
    assert EmbedderConfig.from_toml('layers = "1+6"') == EmbedderConfig(layers="1+6")
    assert EmbedderConfig.from_json("{}") == EmbedderConfig()


@pytest.mark.parametrize("text", ["layers = ", "= 1", "[layers"])
def test_invalid_toml(text):
    with pytest.raises(ConfigError, match="not valid TOML"):
        EmbedderConfig.from_toml(text)


@pytest.mark.parametrize(("text", "named"), [("{", "not valid JSON"), ("[1]", "list: expected a JSON object")])
def test_invalid_json(text, named):
    with pytest.raises(ConfigError, match=named):
        EmbedderConfig.from_json(text)


def test_config_is_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EmbedderConfig().model = "other"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"postprocess": ("zcore",)}, "'zcore'.*center"),
        ({"postprocess": "zscore"}, "postprocess is 'zscore': expected a list of strings"),
        ({"postprocess": ("zscore", 2)}, "postprocess is .*: expected a list of strings"),
        ({"weighting": "tfidf"}, "'tfidf'.*idf:SHARE"),
        ({"layers": "top"}, "'top'.*last"),
        ({"layers": 3}, "layers is 3: expected a string"),
        ({"query_fit": "three"}, "'three'.*separate, shared"),
        ({"pooling": "first"}, "'first'.*masks"),
        ({"template": "no place"}, r"'no place'.*\[X\] once"),
        ({"template": "[X] [X]"}, r"\[X\] once"),
        ({"query_template": "t9"}, "'t9'.*t4"),
        ({"template_tokens": "none"}, "'none'.*common"),
        ({"dtype": "int4"}, "'int4'"),
        ({"max_tokens": 3}, "max_tokens is 3"),
        ({"max_tokens": "many"}, "max_tokens is 'many': expected a whole number or None"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"special_tokens": 1}, "special_tokens is 1: expected true or false or None"),
        ({"pseudo_queries": 0}, "pseudo_queries is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"model": ""}, "model is empty"),
        ({"extractor": "bert"}, "'bert'.*bert\\+avg"),
        ({"poling": "mean"}, "'poling'.*expected one of extractor, model"),
    ],
)
def test_invalid_value_names_the_accepted_ones(changes, named):
    with pytest.raises(ConfigError, match=named):
        EmbedderConfig().replace(**changes)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"extractor": "re", "layers": "1"}, "layers is '1', but extractor 're' does not use it"),
        ({"extractor": "re", "template": "t4"}, "template is 't4'"),
        ({"extractor": "avg", "pooling": "masks"}, "pooling is 'masks'"),
        ({"extractor": "sbert-wk", "layers": "1"}, "layers is '1', but extractor 'sbert-wk'"),
        ({"avg_corpus": "wiki.txt"}, "avg_corpus is 'wiki.txt', but extractor 'transformer'"),
        ({"extractor": "words", "special_tokens": True}, "special_tokens is True"),
        ({"template_tokens": "counted", "weighting": "sif"}, "template_tokens is 'counted', but weighting 'sif'"),
        ({"biases": ["the"]}, "biases is .*, but weighting 'auto' does not use it"),
    ],
)
def test_unused_setting_is_rejected(settings, named):
    with pytest.raises(ConfigError, match=named):
        EmbedderConfig(**settings)


def test_unknown_preset_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"'mini'.*minilm.*sbert-wk"):
        EmbedderConfig.from_preset("mini")


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"weighting": "uniform"}, False),
        ({"weighting": "idf:0"}, False),
        ({"weighting": "-biases"}, False),
        ({"weighting": "usif"}, True),
        ({"weighting": "uniform", "extractor": "avg"}, True),
        ({"weighting": "uniform", "extractor": "avg", "avg_corpus": "wiki.txt"}, False),
    ],
)
def test_fits_tokens(changes, fits):
    assert EmbedderConfig(**changes).fits_tokens is fits
