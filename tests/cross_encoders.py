"""A cross-encoder on disk with known scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np

HIDDEN, EPS = 8, 1.0


def make_cross_encoder(folder: Path, word: str = "lock", labels: int = 1) -> Path:
    """Save a one-layer BERT with uniform attention; its score increases with the share of ``word`` in the tokens."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    vocabulary = {piece: i for i, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", word])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=32, **special).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=4,
        max_position_embeddings=32,
        layer_norm_eps=EPS,
        num_labels=labels,
    )
    config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5.2.0"}
    model = BertForSequenceClassification(config)
    attention = model.bert.encoder.layer[0].attention
    with torch.no_grad():
        for name, weights in model.named_parameters():
            weights.fill_(1.0 if name.endswith("LayerNorm.weight") else 0.0)
        model.bert.embeddings.word_embeddings.weight[vocabulary[word], 0] = 8.0
        for linear in (attention.self.value, attention.output.dense, model.bert.pooler.dense):
            linear.weight.copy_(torch.eye(HIDDEN))
        model.classifier.weight[:, 0] = 1.0
    model.save_pretrained(folder, safe_serialization=True)
    return folder


def known_score(query: str, text: str, word: str = "lock") -> float:
    """Return the score of the model of :func:`make_cross_encoder`, computed with NumPy."""
    words = [*query.lower().split(), *text.lower().split()][:29]
    share = words.count(word) / (len(words) + 3)
    embedded = np.zeros(HIDDEN)
    embedded[0] = 8.0
    state = share * _normalised(embedded)
    return float(np.tanh(_normalised(_normalised(state))[0]))


def _normalised(state: np.ndarray) -> np.ndarray:
    return (state - state.mean()) / np.sqrt(state.var() + EPS)
