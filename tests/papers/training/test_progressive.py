"""Complete trainings of tiny models: separate steps, selection, interruption, and the files on disk."""

import dataclasses
import itertools
import json
import shutil

import numpy as np
import pytest
import torch
from transformers import BertForPreTraining, RobertaForMaskedLM

from ragembed.errors import ConfigError, ModelError, TrainingError
from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers.training import train as training
from ragembed.papers.training.checkpoints import Checkpoints, read_tensors
from ragembed.papers.training.dictionary import read_dictionaries
from ragembed.papers.training.encoder import Arithmetic, load_encoder
from ragembed.papers.training.entries import EntrySpace, entry_embeddings
from ragembed.papers.training.glosses import TrainingTexts
from ragembed.papers.training.material import TrainingRequest
from ragembed.papers.training.reverse_dictionary import ReverseDictionary
from ragembed.papers.training.settings import StepSettings, TrainingSettings
from ragembed.papers.training.train import train_from_dictionary
from ragembed.papers.training.training_run import Optimizer, RunPlace, train_run
from ragembed.progress import SilentProgress

STEP = StepSettings("cls", "amp", 1e-3)
CPU = Arithmetic(torch.device("cpu"))


class RecordingProgress(SilentProgress):
    """Records all progress."""

    def __init__(self):
        self.phases, self.details, self.notes = [], [], []

    def start(self, phase, unit, total):
        self.phases.append((phase, unit, total))

    def advance(self, count, detail=""):
        self.details.append(detail)

    def note(self, text):
        self.notes.append(text)


def settings(*steps, **more):
    return TrainingSettings(steps or (STEP,), batch_size=more.pop("batch_size", 8), **{"held_out": 4, **more})


def request(glossary, model, out, *steps, pairs=(), checkpoint_seconds=300.0, pictures=False, **more):
    return TrainingRequest(
        (glossary,), str(model), out, settings(*steps, **more), pairs, pictures, "cpu", checkpoint_seconds
    )


def weights(folder):
    return read_tensors(folder / "model.safetensors")[0]


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_one_step_writes_a_complete_model_folder(glossary, bert, tmp_path):
    progress = RecordingProgress()
    report = train_from_dictionary(request(glossary, bert, tmp_path / "out"), progress)
    out = tmp_path / "out"
    assert {file.name for file in out.iterdir()} == {
        *("config.json", "model.safetensors", "tokenizer.json"),
        *("entries.json", "entries.safetensors", "held-out.jsonl", "training.json"),
    }
    assert json.loads((out / "training.json").read_text()) == report
    assert report["method"] == "defsent-plus"
    assert report["statistics"]["entries"] == 24
    [step] = report["steps"]
    assert step["runs"][0]["loss"] < step["runs"][0]["first_loss"]
    assert 0 < step["space"]["isoscore"] < 1
    assert step["runs"][0]["held_out"]["definitions"] == 4
    assert len((out / "held-out.jsonl").read_text().splitlines()) >= 4
    assert ("step 1 of 1, run 1 of 1", "definitions", report["statistics"]["definitions"] - 4) in progress.phases
    assert progress.details[-1].startswith("loss ")
    assert not same(weights(out), weights(bert))


def test_first_batch_of_each_step_uses_the_original_model(glossary, bert, tmp_path, monkeypatch):
    """Compare the gradients of the first batch of each step with plain transformers, on the vectors of that step."""
    seen = []
    step_of = Optimizer.step

    def step(self, batch, batches):
        if batch == 0:
            seen.append({name: each.grad.clone() for name, each in self._named.items() if each.grad is not None})
        step_of(self, batch, batches)

    spaces = []
    train = training.train_run

    def recorded(encoder, texts, space, *rest):
        spaces.append((texts, space))
        return train(encoder, texts, space, *rest)

    monkeypatch.setattr(Optimizer, "step", step)
    monkeypatch.setattr(training, "train_run", recorded)
    train_from_dictionary(request(glossary, bert, tmp_path / "out", STEP, STEP, seed=3))
    assert len(seen) == len(spaces) == 2
    assert np.abs(spaces[0][1].vectors - spaces[1][1].vectors).max() > 1e-3
    for gradients, (texts, space) in zip(seen, spaces, strict=True):
        model = BertForPreTraining.from_pretrained(str(bert)).bert
        rows = np.random.default_rng([3, 0]).permutation(len(texts))[:8]
        loss = 0.0
        ids = list(texts.windows.tokens)
        for row in rows:
            projected = model(input_ids=torch.tensor(ids[texts.text[row]])[None]).pooler_output[0]
            scores = torch.from_numpy(space.vectors) @ projected
            loss = loss - torch.log_softmax(scores, dim=0)[texts.entry[row]] / len(rows)
        loss.backward()
        expected = {f"body.{name}": each.grad for name, each in model.named_parameters() if each.grad is not None}
        assert gradients.keys() == expected.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-3)


def test_best_encoder_builds_the_next_entry_vectors(glossary, bert, tmp_path, monkeypatch):
    out = tmp_path / "out"
    first = tmp_path / "first"
    train_from_dictionary(request(glossary, bert, first, STEP, runs=3))
    made = []
    monkeypatch.setattr(training, "entry_embeddings", lambda *given: made.append(entry_embeddings(*given)) or made[-1])
    report = train_from_dictionary(request(glossary, bert, out, STEP, STEP, runs=3))
    scores = [each["score"] for each in report["steps"][0]["runs"]]
    assert report["steps"][0]["best"] == int(np.argmax(scores))
    assert [each["seed"] for each in report["steps"][0]["runs"]] == [0, 1, 2]
    assert len({each["loss"] for each in report["steps"][0]["runs"]}) == 3
    spread = report["steps"][0]["summary"]["held_out"]["top10"]
    values = [each["held_out"]["top10"] for each in report["steps"][0]["runs"]]
    assert spread == pytest.approx({"mean": np.mean(values), "deviation": np.std(values, ddof=1)})
    # The best encoder of a training with only the first step must have built the entry vectors of the second step.
    tokenizer = TextTokenizer(bert)
    held = {json.loads(line)["definition"] for line in (first / "held-out.jsonl").read_text().splitlines()}
    whole = read_dictionaries([glossary])
    kept = type(whole)(whole.entries, tuple(tuple(t for t in d if t not in held) for d in whole.definitions))
    texts = TrainingTexts.of(kept, tokenizer, None, 0)
    expected = entry_embeddings(load_encoder(first, "own"), texts, "amp", CPU, SilentProgress())
    np.testing.assert_array_equal(made[1], expected)


def test_sentence_pairs_select_the_best_run(glossary, bert, pairs, tmp_path):
    report = train_from_dictionary(request(glossary, bert, tmp_path / "out", runs=2, pairs=(pairs,)))
    assert report["chosen_by"] == "sentence pairs"
    assert set(report["before"]["sts"]) == {"cls", "mean", "prompt"}
    for each in report["steps"][0]["runs"]:
        assert each["score"] == max(scores["pairs"] for scores in each["sts"].values())
    assert report["steps"][0]["best"] == int(np.argmax([each["score"] for each in report["steps"][0]["runs"]]))


class PowerCutError(Exception):
    """Simulates a power cut."""


@pytest.mark.parametrize("stop_at", [21, pytest.param(1, marks=pytest.mark.slow)])
def test_interrupted_training_gives_the_same_result(glossary, bert_with_dropout, tmp_path, monkeypatch, stop_at):
    steps = (STEP, StepSettings("mean", "ac", 5e-4))
    straight = train_from_dictionary(request(glossary, bert_with_dropout, tmp_path / "a", *steps, runs=2))
    batches = itertools.count(1)
    step_of = Optimizer.step

    def step(self, batch, count):
        if next(batches) == stop_at:
            raise PowerCutError
        step_of(self, batch, count)

    wanted = request(glossary, bert_with_dropout, tmp_path / "b", *steps, runs=2, checkpoint_seconds=0.0)
    monkeypatch.setattr(Optimizer, "step", step)
    with pytest.raises(PowerCutError):
        train_from_dictionary(wanted)
    assert not (tmp_path / "b" / "training.json").exists()
    progress = RecordingProgress()
    again = train_from_dictionary(wanted, progress)
    assert progress.notes[0].startswith("resuming the training")
    for file in ("model.safetensors", "entries.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert _untimed(straight) == _untimed(again)


def _untimed(value):
    if isinstance(value, dict):
        return {name: _untimed(each) for name, each in value.items() if name != "seconds"}
    return [_untimed(each) for each in value] if isinstance(value, list) else value


def test_other_settings_are_rejected_in_the_same_folder(glossary, bert, tmp_path, monkeypatch):
    def stop(*given):
        raise PowerCutError

    with monkeypatch.context() as patched:
        patched.setattr(training, "train_run", stop)
        with pytest.raises(PowerCutError):
            train_from_dictionary(request(glossary, bert, tmp_path / "out"))
    with pytest.raises(ConfigError, match="contains a training with different 'settings'"):
        train_from_dictionary(request(glossary, bert, tmp_path / "out", seed=7))
    train_from_dictionary(request(glossary, bert, tmp_path / "out"))
    with pytest.raises(ConfigError, match="already contains a trained model"):
        train_from_dictionary(request(glossary, bert, tmp_path / "out"))


def run_once(glossary, model, folder, value, **more):
    """Train one run with entry vectors that all have this value, and return the texts and the losses."""
    texts = TrainingTexts.of(read_dictionaries([glossary]), TextTokenizer(model), None, 0)
    space, place = EntrySpace(np.full((24, 16), value, dtype=np.float32)), RunPlace(0, 1, 0, 1)
    given = (load_encoder(model, "own"), texts, space, settings(**more), CPU, place, Checkpoints(folder, 9.0))
    return texts, train_run(*given, SilentProgress())


def test_non_finite_loss_is_an_error(glossary, bert, tmp_path):
    with pytest.raises(TrainingError, match=r"step 1 of 1, run 1 of 1: the loss is nan in batch 1 of .*0\.001"):
        run_once(glossary, bert, tmp_path, np.inf)


def test_roberta_ica_and_pictures(glossary, roberta, tmp_path):
    pytest.importorskip("matplotlib")
    progress = RecordingProgress()
    last = StepSettings("mean", "ac", 1e-4, "arbitrary-variance")
    wanted = request(glossary, roberta, tmp_path / "out", StepSettings("mean", "ac", 1e-4), last, pictures=True)
    report = train_from_dictionary(wanted, progress)
    assert report["head"] == "gelu"
    space = report["steps"][1]["space"]
    assert space["ica"] == "arbitrary-variance"
    assert {file.name for file in (tmp_path / "out" / "pictures").iterdir()} == {
        *("step-1.png", "step-2.png", "step-2-ica.png"),
    }
    vectors = read_tensors(tmp_path / "out" / "entries.safetensors")[0]["entries"]
    np.testing.assert_allclose(vectors.norm(dim=0), 100.0, rtol=1e-3)
    assert space["ica_converged"] == (not any("did not converge" in each for each in progress.notes))


@pytest.mark.parametrize("entries", ["amp", "words"])
def test_reverse_dictionary_of_a_trained_folder(glossary, bert, tmp_path, entries):
    out = tmp_path / "out"
    report = train_from_dictionary(request(glossary, bert, out, StepSettings("mean", entries, 1e-3)))
    reverse = ReverseDictionary(out, "cpu")
    found = reverse.look_up("the writer of the store", k=1000)
    assert sorted(each.entry for each in found) == sorted(reverse.entries)
    assert sum(each.probability for each in found) == pytest.approx(1.0)
    assert [each.probability for each in found] == sorted((each.probability for each in found), reverse=True)
    held_out = tmp_path / "held-out.jsonl"
    shutil.copy(out / "held-out.jsonl", held_out)
    assert reverse.measure(read_dictionaries([held_out])).to_dict() == pytest.approx(
        report["steps"][0]["runs"][0]["held_out"]
    )
    with pytest.raises(ConfigError, match="description is empty"):
        reverse.look_up(" ")
    (tmp_path / "other.tsv").write_text("no such entry\ttext\n")
    with pytest.raises(ConfigError, match="trained on none of the 1 entries, such as 'no such entry'"):
        reverse.measure(read_dictionaries([tmp_path / "other.tsv"]))


def test_untrained_folder_has_no_reverse_dictionary(bert, tmp_path):
    with pytest.raises(TrainingError, match=r"has no training\.json"):
        ReverseDictionary(bert)
    (tmp_path / "training.json").write_text("{")
    with pytest.raises(TrainingError, match="damaged"):
        ReverseDictionary(tmp_path)
    (tmp_path / "training.json").write_text('{"format": 2}')
    with pytest.raises(TrainingError, match="has the format 2"):
        ReverseDictionary(tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_tokens": 99}, "max_tokens is 99"),
        ({"runs": 2, "held_out": 0}, "cannot choose the best of 2 runs"),
        ({"steps": (StepSettings("cls", "amp", 1e-4, "unit-variance"),)}, "24 entries and vectors of 32 dimensions"),
        ({"pairs": "twice"}, "have the names pairs, pairs"),
    ],
)
def test_invalid_requests_write_nothing(glossary, bert, tiny_model, pairs, tmp_path, given, message):
    steps, model = given.get("steps", ()), tiny_model if "steps" in given else bert
    more = {name: value for name, value in given.items() if name not in ("steps", "pairs")}
    twice = (pairs, pairs) if "pairs" in given else ()
    with pytest.raises(ConfigError, match=message):
        train_from_dictionary(request(glossary, model, tmp_path / "out", *steps, pairs=twice, **more))
    assert not (tmp_path / "out").exists()


def test_head_comes_from_another_model(glossary, roberta, tmp_path):
    """A model without a head for masked words trains with the head of another one, as SimCSE-RoBERTa with RoBERTa's."""
    headless = tmp_path / "headless"
    RobertaForMaskedLM.from_pretrained(str(roberta)).roberta.save_pretrained(headless)
    shutil.copyfile(roberta / "tokenizer.json", headless / "tokenizer.json")
    step = StepSettings("cls", "ac", 1e-3)
    given = request(glossary, headless, tmp_path / "out", step)
    with pytest.raises(ModelError, match="head"):
        train_from_dictionary(given)
    report = train_from_dictionary(dataclasses.replace(given, head_from=str(roberta)))
    assert report["head_from"] == str(roberta)
    own = train_from_dictionary(request(glossary, roberta, tmp_path / "own", step))
    # The body and the head are the same, so that the training is too.
    assert report["steps"][0]["runs"][0]["loss"] == pytest.approx(own["steps"][0]["runs"][0]["loss"], rel=1e-5)


def test_truncated_definitions_are_reported_and_bf16_is_close(glossary, bert, tmp_path):
    progress = RecordingProgress()
    report = train_from_dictionary(request(glossary, bert, tmp_path / "out", max_tokens=8), progress)
    assert report["truncated"] > 0
    half = train_from_dictionary(request(glossary, bert, tmp_path / "half", max_tokens=8, bf16=True))
    losses = [one["steps"][0]["runs"][0]["loss"] for one in (report, half)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert losses[0] != losses[1]
    assert f"{report['truncated']} definitions are longer than 8 tokens and are truncated" in progress.notes


def test_second_process_in_a_folder_is_rejected(glossary, bert, tmp_path):
    with (
        Checkpoints(tmp_path / "out" / "checkpoints", 9.0).locked(),
        pytest.raises(TrainingError, match="another process is training in"),
    ):
        train_from_dictionary(request(glossary, bert, tmp_path / "out"))
    train_from_dictionary(request(glossary, bert, tmp_path / "out"))


def test_damaged_checkpoints_are_an_error(tmp_path):
    checkpoints = Checkpoints(tmp_path, 0.0)
    (tmp_path / "running.safetensors").write_bytes(b"no tensors")
    with pytest.raises(TrainingError, match=r"running\.safetensors is damaged"):
        checkpoints.load_run(0, 0)
    (tmp_path / "space.json").write_text("{")
    with pytest.raises(TrainingError, match=r"space\.json is damaged.*to start again"):
        checkpoints.read("space.json")


def test_other_files_are_rejected_and_kept(tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "plan.json").write_text("{}")
    (folder / "notes.txt").write_text("years of work")
    checkpoints = Checkpoints(folder, 0.0)
    with pytest.raises(ConfigError, match=r"contains 'notes\.txt', which is not from a training"), checkpoints.locked():
        pass
    checkpoints.remove()
    assert [entry.name for entry in folder.iterdir()] == ["notes.txt"]
