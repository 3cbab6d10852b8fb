"""Small models with random weights, one per family and way of packaging, saved by sentence-transformers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

DIM = 32
TEXTS = [
    "the cat sleeps",
    "Supersonic flow over a wing: shock wave and boundary layer.",
    "什么 is Überraschung? café naïve 🙂",
    "\n  leading space\n\nand lines",
    "12345 6.78 x_y = f(a, b);",
    "the dog runs and the fish swims, the bird flies " * 5,
    "lock",
    "?",
    "",
]
INSTRUCTION = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
_CORPUS = [*TEXTS, *[INSTRUCTION, "title: none | text: task: search result | query: passage: "] * 5]
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Family:
    """A model in the manner of ``like``: its configuration, tokenizer and package."""

    name: str
    like: str
    config: str
    tokenizer: str
    pooling: str | tuple[str, ...] | None
    prompts: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    include_prompt: bool = True
    truncate_dim: int | None = None
    lower_case: bool = False
    adapter: bool = False


_E5 = {"query": "query: ", "document": "passage: "}
FAMILIES = (
    Family("BERT", "bge", "BertConfig", "wordpiece", "cls", {"query": "Represent this sentence: "}, ("Normalize",)),
    Family("BERT", "e5", "BertConfig", "wordpiece", "mean", _E5, ("Normalize",)),
    Family("BERT", "MiniLM", "BertConfig", "wordpiece", "mean"),
    Family("BERT", "LaBSE", "BertConfig", "wordpiece", "cls", {}, ("Dense Tanh 32", "Normalize")),
    Family(
        "BERT",
        "pooling in every mode",
        "BertConfig",
        "wordpiece",
        ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"),
    ),
    Family("XLM-R", "multilingual-e5", "XLMRobertaConfig", "xlmr", "mean", _E5, ("Normalize",)),
    Family("XLM-R", "snowflake-arctic-v2", "XLMRobertaConfig", "xlmr", "cls", {"query": "query: "}, truncate_dim=16),
    Family("MPNet", "all-mpnet", "MPNetConfig", "wordpiece", "mean", {}, ("Normalize",)),
    Family("RoBERTa", "all-distilroberta", "RobertaConfig", "roberta", "mean", {"query": "query:"}),
    Family("RoBERTa", "lower-cased", "RobertaConfig", "roberta", "mean", lower_case=True),
    Family("DistilBERT", "distiluse", "DistilBertConfig", "wordpiece", "mean", {}, ("Dense Tanh 16",)),
    Family("ModernBERT", "gte-modernbert", "ModernBertConfig", "modernbert", "cls"),
    Family(
        "NomicBERT",
        "nomic-embed",
        "NomicBertConfig",
        "wordpiece",
        "mean",
        {"query": "search_query: ", "document": "search_document: "},
        ("LayerNorm", "Normalize"),
        truncate_dim=24,
    ),
    Family("GTE", "gte-multilingual", "GteConfig", "xlmr", "cls", {}, ("Normalize",)),
    Family(
        "GTE",
        "snowflake-arctic-m-v2",
        "GteConfig",
        "xlmr",
        "cls",
        {"query": "query: "},
        ("Normalize",),
        {"auto_map": {"AutoModel": "modeling_hf_alibaba_nlp_gte.GteModel"}},
    ),
    Family("EuroBERT", "EuroBERT", "EuroBertConfig", "modernbert", "mean", settings={"num_key_value_heads": 2}),
    Family("T5", "sentence-t5", "T5Config", "t5", "mean", {}, ("Dense Identity 48", "Normalize")),
    Family("T5", "instructor", "T5Config", "t5", "mean", {"query": "Represent the query: "}, include_prompt=False),
    Family("Qwen2", "gte-Qwen2", "Qwen2Config", "qwen", "lasttoken", {"query": INSTRUCTION}, ("Normalize",)),
    Family("Qwen3", "Qwen3-Embedding", "Qwen3Config", "qwen", "lasttoken", {"query": INSTRUCTION}, ("Normalize",)),
    Family("Qwen3", "a PEFT adapter", "Qwen3Config", "qwen", "lasttoken", {"query": INSTRUCTION}, adapter=True),
    Family(
        "Gemma 3, bidirectional",
        "EmbeddingGemma",
        "Gemma3TextConfig",
        "gemma",
        "mean",
        {"query": "task: search result | query: ", "document": "title: none | text: "},
        ("Dense Identity 96", "Dense Identity 32", "Normalize"),
        {"use_bidirectional_attention": True, "sliding_window": 64},
    ),
    Family("Llama", "weights by position", "LlamaConfig", "gemma", "weightedmean", {"query": INSTRUCTION}),
    Family("Mistral", "e5-mistral", "MistralConfig", "gemma", "lasttoken", {"query": INSTRUCTION}, ("Normalize",)),
    Family("static vectors", "StaticEmbedding", "", "wordpiece", None, {"query": "query: "}, ("Normalize",)),
)


def make_model(family: Family, folder: Path) -> Path:
    """Save the model of ``family`` in ``folder`` and return the folder of its package."""
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer import modules

    torch.manual_seed(0)
    tokenizer = TOKENIZERS[family.tokenizer]()
    after = [_module(spec) for spec in family.modules]
    if not family.config:
        first = [modules.StaticEmbedding(tokenizer, embedding_dim=DIM)]
    else:
        config = _config(family, len(tokenizer), tokenizer.pad_token_id)
        encoder = transformers.T5EncoderModel if family.name == "T5" else transformers.AutoModel.from_config
        encoder(config).save_pretrained(folder / "plain")
        tokenizer.save_pretrained(folder / "plain")
        transformer = Transformer(str(folder / "plain"), do_lower_case=family.lower_case)
        if family.adapter:
            _adapt(transformer, folder / "plain")
        first = [transformer, modules.Pooling(DIM, family.pooling, include_prompt=family.include_prompt)]
    model = SentenceTransformer(
        modules=[*first, *after], prompts=dict(family.prompts) or None, truncate_dim=family.truncate_dim, device="cpu"
    )
    if family.config:
        model.max_seq_length = 256
    model.save(str(folder / "packaged"))
    return folder / "packaged"


def _adapt(transformer: Any, base: Path) -> None:
    """Add a PEFT adapter with random weights to a module."""
    import peft
    import torch

    model = transformer.model
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    model.peft_config["default"].base_model_name_or_path = str(base)
    for name, weights in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weights, std=0.3)


def _module(spec: str) -> Any:
    import torch
    from sentence_transformers.base.modules import Dense, Normalize
    from sentence_transformers.sentence_transformer.modules import LayerNorm

    name, *rest = spec.split()
    if name == "Normalize":
        return Normalize()
    if name == "LayerNorm":
        return LayerNorm(DIM)
    before = {"96": DIM, "32": 96 if rest[0] == "Identity" else DIM}.get(rest[1], DIM)
    return Dense(before, int(rest[1]), bias=rest[0] != "Identity", activation_function=getattr(torch.nn, rest[0])())


def _config(family: Family, size: int, padding: int) -> Any:
    import transformers

    common: dict[str, Any] = {"vocab_size": size, "pad_token_id": padding, "initializer_range": 0.3}
    if family.name == "T5":
        shape = {"d_model": DIM, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
        return transformers.T5Config(vocab_size=size, pad_token_id=padding, **shape)
    if family.name == "DistilBERT":
        shape = {"dim": DIM, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 300}
        return transformers.DistilBertConfig(**common, **shape)
    shape = {"hidden_size": DIM, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if family.tokenizer in ("qwen", "gemma"):
        shape |= {"num_key_value_heads": 2, "head_dim": 8}
    if family.config == "XLMRobertaConfig":
        shape |= {"type_vocab_size": 1}
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0)
    settings = {**common, **shape, **special, "max_position_embeddings": 300, **family.settings}
    return getattr(transformers, family.config)(**settings)


def _fast(tokenizer: Any, **names: str) -> Any:
    import transformers

    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def _framed(tokenizer: Any, single: str) -> None:
    """Put special tokens around each text, as in ``"<s> $A </s>"``."""
    from tokenizers import processors

    special = [(name, tokenizer.token_to_id(name)) for name in single.split() if name != "$A"]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)


@cache
def _wordpiece() -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,?!:-_()=;"
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    pieces = [*names, *letters, *(f"##{letter}" for letter in letters), "the", "cat", "dog", "wing", "query", "search"]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    _framed(tokenizer, "[CLS] $A [SEP]")
    return _fast(
        tokenizer, **dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), names, strict=True))
    )


@cache
def _byte_level(single: str, split: str | None, names: Mapping[str, str] | Sequence[tuple[str, str]]) -> Any:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    level = pre_tokenizers.ByteLevel
    tokenizer.pre_tokenizer = level(add_prefix_space=False)
    if split is not None:
        first = pre_tokenizers.Split(Regex(split), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([first, level(add_prefix_space=False, use_regex=False)])
    special = list(dict.fromkeys(dict(names).values()))
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, initial_alphabet=level.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    _framed(tokenizer, single)
    return _fast(tokenizer, **dict(names))


_SENTENCE_PIECE = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


@cache
def _unigram(single: str) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = list(_SENTENCE_PIECE.values())
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    _framed(tokenizer, single)
    return _fast(tokenizer, **_SENTENCE_PIECE)


@cache
def _gemma() -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    names = ["<pad>", "<eos>", "<bos>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=names, show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    saved = json.loads(tokenizer.to_str())
    for byte in range(256):
        saved["model"]["vocab"].setdefault(f"<0x{byte:02X}>", len(saved["model"]["vocab"]))
    tokenizer = Tokenizer.from_str(json.dumps(saved))
    _framed(tokenizer, "<bos> $A <eos>")
    return _fast(tokenizer, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>")


_ROBERTA = (("bos_token", "<s>"), ("pad_token", "<pad>"), ("eos_token", "</s>"), ("unk_token", "<unk>"))
_BERT = (("cls_token", "[CLS]"), ("pad_token", "[PAD]"), ("sep_token", "[SEP]"), ("unk_token", "[UNK]"))
TOKENIZERS: Mapping[str, Callable[[], Any]] = {
    "wordpiece": _wordpiece,
    "roberta": partial(_byte_level, "<s> $A </s>", None, _ROBERTA),
    "modernbert": partial(_byte_level, "[CLS] $A [SEP]", None, _BERT),
    "qwen": partial(_byte_level, "$A <|end|>", _QWEN, (("pad_token", "<|end|>"), ("eos_token", "<|end|>"))),
    "xlmr": partial(_unigram, "<s> $A </s>"),
    "t5": partial(_unigram, "$A </s>"),
    "gemma": _gemma,
}
