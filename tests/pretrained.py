"""Tiny pre-trained models with poolers and masked-word heads."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import WORDS

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def pretrained(folder: Path, seed: int, *, roberta: bool = False, dropout: bool = False, **sizes: int) -> Path:
    """Save a BERT with a pooler and a masked-word head, or a RoBERTa with a masked-word head and without a pooler.

    Without dropout, its gradients are deterministic.
    """
    import torch
    from transformers import BertConfig, BertForPreTraining, RobertaConfig, RobertaForMaskedLM

    more = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "vocab_size": _word_pieces(folder),
        "max_position_embeddings": 34,
        "initializer_range": 0.3,
        **({} if dropout else {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
        **sizes,
    }
    torch.manual_seed(seed)
    if roberta:
        ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "type_vocab_size": 1}
        model = RobertaForMaskedLM(RobertaConfig(**ids, **more))
        biases = [model.lm_head.dense.bias]
    else:
        model = BertForPreTraining(BertConfig(**more))
        biases = [model.cls.predictions.bias, model.bert.pooler.dense.bias]
    with torch.no_grad():
        for bias in biases:
            bias.normal_()
    model.save_pretrained(folder)
    return folder


def _word_pieces(folder: Path) -> int:
    """Save a tokenizer and return the size of its vocabulary."""
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
