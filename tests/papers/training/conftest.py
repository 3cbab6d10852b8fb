"""Fixtures: tiny pre-trained models with poolers and masked-word heads, a dictionary and sentence pairs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.conftest import WORDS

DIM = 16
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def word_pieces(folder: Path) -> int:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = dict.fromkeys([*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *WORDS])
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return len(vocabulary)


def sizes(**more):
    return {
        "hidden_size": DIM,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 34,
        "initializer_range": 0.3,
        **more,
    }


@pytest.fixture(scope="session")
def bert(tmp_path_factory) -> Path:
    """A pre-trained BERT with a pooler and a masked-word head. Without dropout, its gradients are deterministic."""
    import torch
    from transformers import BertConfig, BertForPreTraining

    folder = tmp_path_factory.mktemp("bert")
    size = word_pieces(folder)
    torch.manual_seed(1)
    config = BertConfig(vocab_size=size, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes())
    model = BertForPreTraining(config)
    with torch.no_grad():
        model.cls.predictions.bias.normal_()
        model.bert.pooler.dense.bias.normal_()
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def bert_with_dropout(tmp_path_factory) -> Path:
    """The same model with dropout."""
    import torch
    from transformers import BertConfig, BertForPreTraining

    folder = tmp_path_factory.mktemp("dropping")
    size = word_pieces(folder)
    torch.manual_seed(1)
    BertForPreTraining(BertConfig(vocab_size=size, **sizes())).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def roberta(tmp_path_factory) -> Path:
    """A pre-trained RoBERTa with a masked-word head and without a pooler."""
    import torch
    from transformers import RobertaConfig, RobertaForMaskedLM

    folder = tmp_path_factory.mktemp("roberta")
    size = word_pieces(folder)
    torch.manual_seed(2)
    config = RobertaConfig(
        vocab_size=size,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **sizes(),
    )
    model = RobertaForMaskedLM(config)
    with torch.no_grad():
        model.lm_head.dense.bias.normal_()
    model.save_pretrained(folder)
    return folder


def senses(entries: int = 24, seed: int = 0) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    names = [*WORDS[8:30], *(f"{one} {other}" for one in WORDS[30:36] for other in WORDS[36:44])][:entries]
    return [
        (name, " ".join(draw.choices(WORDS, k=draw.randint(3, 9)))) for name in names for _ in range(draw.randint(1, 3))
    ]


@pytest.fixture(scope="session")
def glossary(tmp_path_factory) -> Path:
    """A dictionary of 24 entries with one to three definitions each."""
    file = tmp_path_factory.mktemp("glossary") / "glossary.tsv"
    file.write_text("".join(f"{entry}\t{definition}\n" for entry, definition in senses()), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def pairs(tmp_path_factory) -> Path:
    """Sentence pairs. The score is the number of words that the two sentences share."""
    draw = random.Random(3)
    lines = ["score\tsentence1\tsentence2"]
    for i in range(20):
        first = draw.sample(WORDS, 5)
        kept = i % 5
        lines.append(f"{kept}\t{' '.join(first)}\t{' '.join([*first[:kept], *draw.sample(WORDS, 5 - kept)])}")
    file = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
