"""The settings of the paper's tables 2, 3 and 5, and the default recipe of a model."""

import json

import pytest

from ragembed.errors import ConfigError, ModelError
from ragembed.papers.training.settings import RECIPES, StepSettings, recipe_for


def test_bert_base_has_three_steps_and_ica_in_the_last():
    assert RECIPES["bert-base"].steps() == (
        StepSettings("cls", "amp", 5e-5),
        StepSettings("cls", "amp", 4e-5),
        StepSettings("cls", "amp", 3e-5, "unit-variance"),
    )


def test_given_values_replace_the_recipe():
    recipe = RECIPES["bert-base"]
    assert [step.learning_rate for step in recipe.steps(4)] == [5e-5, 4e-5, 3e-5, 3e-5]
    found = recipe.steps(2, (("mean", "ac"), ("cls", "amp")), (1e-4,), "none")
    assert found == (StepSettings("mean", "ac", 1e-4), StepSettings("cls", "amp", 1e-4))
    assert recipe.steps(1, ica="arbitrary-variance") == (StepSettings("cls", "amp", 5e-5, "arbitrary-variance"),)
    assert len(RECIPES["simcse-bert-base"].steps(learning_rates=(1e-5, 1e-6))) == 2
    with pytest.raises(ConfigError, match="there are 2 learning rates for 1 steps"):
        recipe.steps(1, learning_rates=(1e-5, 1e-6))


@pytest.mark.parametrize(
    ("family", "dimension", "file", "name"),
    [
        ("bert", 768, None, "bert-base"),
        ("bert", 1024, None, "bert-large"),
        ("roberta", 768, None, "roberta-base"),
        ("xlm-roberta", 1024, "modules.json", "simcse-roberta-large"),
        ("bert", 384, "sentence_bert_config.json", "simcse-bert-base"),
    ],
)
def test_default_recipe_depends_on_family_and_size(tmp_path, family, dimension, file, name):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family, "hidden_size": dimension}))
    if file is not None:
        (tmp_path / file).write_text("{}")
    assert recipe_for(tmp_path) == name


def test_folder_without_config_has_no_recipe(tmp_path):
    with pytest.raises(ModelError, match=r"no config\.json with model_type"):
        recipe_for(tmp_path)
