"""Small multi-vector models in the layouts of PyLate and of Stanford's ColBERT, and their scores step by step."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np

HIDDEN, DIM, WINDOW = 16, 8, 64
TEXTS = ["the lock, of the store!", "a wing", "", "lock the wing; " * 20]
QUERY = "which lock of the wing?"
LAYOUTS: dict[str, dict[str, Any]] = {
    "expansion": {"query_length": 12, "document_length": 24},
    "no expansion": {"query_length": 8, "document_length": 24, "do_query_expansion": False},
    "attention": {
        "query_length": 12,
        "document_length": 24,
        "attend_to_expansion_tokens": True,
        "skiplist_words": [","],
    },
    "Stanford": {
        "query_length": 16,
        "document_length": 20,
        "query_prefix": "[unused0]",
        "document_prefix": "[unused1]",
    },
}
"""Settings as PyLate names them."""


def make_multi_vector(folder: Path, layout: str) -> Path:
    """Save a BERT with a projection of each token, with the same weights in every version of PyTorch."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *string.ascii_lowercase, *string.punctuation, "the", "lock", "wing", "of", "store", "which"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = {f"{name[1:-1].lower()}_token": name for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=WINDOW, **names)
    settings = {"query_prefix": "[Q] ", "document_prefix": "[D] ", **LAYOUTS[layout]}
    stanford = layout == "Stanford"
    if not stanford:
        fast.add_tokens([settings["query_prefix"], settings["document_prefix"]])
    fast.save_pretrained(folder)
    sizes = {"hidden_size": HIDDEN, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = BertModel(BertConfig(vocab_size=len(fast), max_position_embeddings=WINDOW, **sizes))
    draw = np.random.RandomState(0)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if not name.endswith("LayerNorm.weight"):
                weights.copy_(torch.from_numpy(draw.normal(scale=0.4, size=tuple(weights.shape))))
    projection = torch.from_numpy(draw.normal(size=(DIM, HIDDEN)).astype(np.float32))
    model.save_pretrained(folder)
    if stanford:
        weights = {f"bert.{name}": value.contiguous() for name, value in model.state_dict().items()}
        save_file({**weights, "linear.weight": projection}, folder / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}))
        stated = {"query_maxlen": settings["query_length"], "doc_maxlen": settings["document_length"]}
        ids = {"query_token_id": settings["query_prefix"], "doc_token_id": settings["document_prefix"]}
        (folder / "artifact.metadata").write_text(json.dumps({**stated, **ids, "attend_to_mask_tokens": False}))
        return folder
    dense = folder / "1_Dense"
    dense.mkdir()
    save_file({"linear.weight": projection}, dense / "model.safetensors")
    identity = "torch.nn.modules.linear.Identity"
    fields = {"in_features": HIDDEN, "out_features": DIM, "bias": False, "activation_function": identity}
    (dense / "config.json").write_text(json.dumps({**fields, "use_residual": False}))
    types = {"": "sentence_transformers.models.Transformer", "1_Dense": "pylate.models.Dense.Dense"}
    rows = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(types.items())]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": WINDOW, "do_lower_case": False}))
    stated = {"model_type": "ColBERT", "similarity_fn_name": "MaxSim", **settings}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(stated))
    return folder


def known_scores(folder: Path, layout: str) -> list[float]:
    """Return the score of each of ``TEXTS`` for ``QUERY``, one text at a time."""
    import torch
    from safetensors.torch import load_file
    from tokenizers import Tokenizer
    from transformers import BertModel

    settings = {"query_prefix": "[Q] ", "document_prefix": "[D] ", "do_query_expansion": True, **LAYOUTS[layout]}
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = BertModel.from_pretrained(folder).eval()
    file = folder / "model.safetensors" if layout == "Stanford" else folder / "1_Dense" / "model.safetensors"
    projection = load_file(file)["linear.weight"].numpy()
    first, last, mask = (tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]", "[MASK]"))
    skipped = [tokenizer.token_to_id(word) for word in settings.get("skiplist_words", string.punctuation)]

    def vectors(text: str, side: str) -> np.ndarray:
        marker, length = tokenizer.token_to_id(settings[f"{side}_prefix"]), settings[f"{side}_length"]
        ids = [first, marker, *tokenizer.encode(text, add_special_tokens=False).ids[: length - 3], last]
        attention, kept = [1] * len(ids), [True] * len(ids)
        if side == "document":
            kept = [number not in skipped for number in ids]
        elif settings["do_query_expansion"]:
            more = length - len(ids)
            ids += [mask] * more
            attention += [int(settings.get("attend_to_expansion_tokens", False))] * more
            kept += [True] * more
        with torch.no_grad():
            output = model(input_ids=torch.tensor([ids]), attention_mask=torch.tensor([attention]))
        projected = output.last_hidden_state[0].numpy()[kept] @ projection.T
        return projected / np.linalg.norm(projected, axis=1, keepdims=True)

    query = vectors(QUERY, "query")
    return [float((query @ vectors(text, "document").T).max(axis=1).sum()) for text in TEXTS]
