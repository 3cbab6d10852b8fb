"""Equations 1 and 5, the optimizer and its schedule, settings, and the recipes of tables 2, 3 and 5."""

import json
import math

import numpy as np
import pytest
import torch

from ragembed import EmbedderConfig
from ragembed.errors import ConfigError, ModelError
from ragembed.papers.training.b2s import B2sRequest
from ragembed.papers.training.entries import entry_loss, entry_scores
from ragembed.papers.training.settings import (
    RECIPES,
    B2sSettings,
    OptimizerSettings,
    StepSettings,
    TrainingSettings,
    recipe_for,
)
from ragembed.papers.training.training_run import Optimizer, linear_decay


@pytest.mark.parametrize("with_bias", [False, True])
def test_loss_equals_plain_softmax(with_bias):
    draw = np.random.default_rng(0)
    projected, entries, bias = draw.normal(size=(5, 7)), draw.normal(size=(11, 7)), draw.normal(size=11)
    target = [3, 0, 10, 3, 7]
    expected = 0.0
    for row, right in zip(projected, target, strict=True):
        scores = [float(row @ entry) + with_bias * b for entry, b in zip(entries, bias, strict=True)]
        expected -= math.log(math.exp(scores[right]) / sum(math.exp(score) for score in scores)) / len(target)
    found = entry_loss(
        torch.tensor(projected).float(),
        torch.tensor(entries).float(),
        torch.tensor(target),
        torch.tensor(bias).float() if with_bias else None,
    )
    assert found.item() == pytest.approx(expected, abs=1e-5)


def test_scores_are_float32_under_autocast():
    projected, entries = torch.randn(2, 8, dtype=torch.bfloat16), torch.randn(3, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = entry_scores(projected, entries)
    assert torch.equal(found, projected.float() @ entries.T)


def test_schedule_equals_transformers():
    from transformers import get_linear_schedule_with_warmup

    weight = torch.nn.Parameter(torch.zeros(1))
    adam = torch.optim.AdamW([weight], lr=1.0)
    for warmup in (0.0, 0.3):
        theirs = get_linear_schedule_with_warmup(adam, int(10 * warmup), 10)
        for batch in range(10):
            assert linear_decay(batch, 10, warmup) == pytest.approx(theirs.get_last_lr()[0])
            adam.step()
            theirs.step()


def test_optimizer_is_adamw_with_clipped_gradients():
    settings = OptimizerSettings()
    module = torch.nn.Linear(3, 1, bias=False)
    weight = module.weight.detach().double().numpy().copy()
    optimizer = Optimizer(module, 0.01, settings)
    moment, square = np.zeros_like(weight), np.zeros_like(weight)
    draw = np.random.default_rng(1)
    for batch in range(6):
        gradient = draw.normal(size=weight.shape) * (5 if batch % 2 else 0.1)
        module.weight.grad = torch.tensor(gradient).float()
        optimizer.step(batch, 6)
        gradient = gradient * min(1.0, 1.0 / (np.linalg.norm(gradient) + 1e-6))
        moment = 0.9 * moment + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        unbiased = moment / (1 - 0.9 ** (batch + 1)), square / (1 - 0.999 ** (batch + 1))
        weight -= 0.01 * (1 - batch / 6) * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-6)
        np.testing.assert_allclose(module.weight.detach().numpy(), weight, atol=1e-6)
        assert module.weight.grad is None


def test_weight_decay_is_decoupled():
    module = torch.nn.Linear(2, 1, bias=False)
    before = module.weight.detach().clone()
    optimizer = Optimizer(module, 0.1, OptimizerSettings(weight_decay=0.5))
    module.weight.grad = torch.zeros_like(before)
    optimizer.step(0, 1)
    torch.testing.assert_close(module.weight.detach(), before * (1 - 0.1 * 0.5))


STEP = StepSettings("cls", "amp", 1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StepSettings("max", "amp", 1e-5), "pooling is 'max': expected one of cls, mean"),
        (lambda: StepSettings("cls", "sum", 1e-5), "entries is 'sum'"),
        (lambda: StepSettings("cls", "amp", 0.0), "learning_rate is 0"),
        (lambda: StepSettings("cls", "amp", 1e-5, "pca"), "ica is 'pca'"),
        (lambda: StepSettings("cls", "words", 1e-5, "unit-variance"), "ica is 'unit-variance': expected 'none'"),
        (lambda: TrainingSettings(()), "there are 0 steps: expected 1 to 4"),
        (lambda: TrainingSettings((STEP,) * 5), "there are 5 steps"),
        (lambda: TrainingSettings((StepSettings("cls", "words", 1e-5), STEP)), "there are 2 steps: expected one"),
        (lambda: TrainingSettings((STEP,), runs=0), "runs is 0: expected at least 1"),
        (lambda: TrainingSettings((STEP,), max_tokens=3), "max_tokens is 3: expected at least 8"),
        (lambda: TrainingSettings((STEP,), head="big"), "head is 'big'"),
        (lambda: OptimizerSettings(eps=0.0), "eps is 0"),
        (lambda: OptimizerSettings(betas=(0.9, 1.0)), "betas are"),
        (lambda: OptimizerSettings(max_grad_norm=math.inf), "max_grad_norm is inf"),
        (lambda: OptimizerSettings(warmup=math.nan), "warmup is nan"),
        (lambda: B2sSettings(min_count=0), "min_count is 0: expected at least 1"),
        (lambda: B2sSettings(threshold=0.0), "threshold is 0.0: expected a number above 0"),
        (lambda: B2sSettings(learning_rate=2), "learning_rate is 2: expected a number above 0 to 1"),
        (lambda: B2sRequest("c", EmbedderConfig(extractor="re"), "o"), "expected one of transformer"),
    ],
)
def test_invalid_settings_are_rejected(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


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
