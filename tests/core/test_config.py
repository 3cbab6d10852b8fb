import dataclasses

import pytest

from ragembed.config import EmbedderConfig, parse_layers, parse_weighting, preset
from ragembed.errors import ConfigError


def test_round_trip_through_json():
    config = EmbedderConfig(layers="1+6", weighting="idf", postprocess=("zscore",), sides="one", max_tokens=128)
    assert EmbedderConfig.from_json(config.to_json()) == config
    assert isinstance(EmbedderConfig.from_json(config.to_json()).postprocess, tuple)


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EmbedderConfig().model = "other"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"postprocess": ("zcore",)}, "'zcore'.*center"),
        ({"weighting": "idf:2"}, "'idf:2'.*idf:SHARE"),
        ({"weighting": "tfidf"}, "'tfidf'"),
        ({"layers": "top"}, "'top'.*last"),
        ({"layers": "-2"}, "layer -2"),
        ({"sides": "three"}, "'three'.*two, one"),
        ({"dtype": "int8"}, "'int8'"),
        ({"max_tokens": 3}, "max_tokens is 3"),
        ({"pseudo_queries": 0}, "pseudo_queries is 0"),
        ({"model": ""}, "model is empty"),
        ({"poling": "mean"}, "'poling'.*expected one of model"),
    ],
)
def test_what_is_not_accepted_is_named_with_what_is(changes, named):
    with pytest.raises(ConfigError, match=named):
        EmbedderConfig().replace(**changes)


def test_unknown_preset_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"'mini'.*minilm"):
        preset("mini")


@pytest.mark.parametrize(
    ("spec", "expected"), [("last", (12,)), ("first+last", (1, 12)), ("0+3", (0, 3)), ("12", (12,))]
)
def test_layers(spec, expected):
    assert parse_layers(spec, 12) == expected


def test_a_layer_the_model_does_not_have():
    with pytest.raises(ConfigError, match="layer 7 does not exist, the model has layers 0 to 6"):
        parse_layers("1+7", 6)


@pytest.mark.parametrize(("spec", "share"), [("uniform", 0.0), ("idf", 1.0), ("idf:0.25", 0.25)])
def test_weighting(spec, share):
    assert parse_weighting(spec) == share
