"""Compare the time to encode documents with that of sentence-transformers, for a model of each family.

The models have random weights and the size of MiniLM: 6 blocks of 384 dimensions. Both programs encode the same texts
in one thread on the CPU, in turns; ragembed also with the arithmetic that it chooses. Processor time in one thread does
not depend on other programs that run. Use the project's environment:

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/encoders.py FOLDER_OF_TEXTS
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from report import table, write_section
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from ragembed import Embedder, EmbedderConfig
from ragembed.models.files import find_model

TURNS, TEXTS, CHARACTERS = 3, 32, 1200
SHAPE = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 514,
}
FAMILIES = {
    "BERT": ("BertConfig", SHAPE),
    "XLM-R": ("XLMRobertaConfig", {**SHAPE, "type_vocab_size": 1, "pad_token_id": 1}),
    "RoBERTa": ("RobertaConfig", {**SHAPE, "type_vocab_size": 1, "pad_token_id": 1}),
    "MPNet": ("MPNetConfig", {**SHAPE, "pad_token_id": 1}),
    "DistilBERT": (
        "DistilBertConfig",
        {"dim": 384, "n_layers": 6, "n_heads": 12, "hidden_dim": 1536, "max_position_embeddings": 514},
    ),
    "ModernBERT": (
        "ModernBertConfig",
        {**SHAPE, "intermediate_size": 1024, **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)},
    ),
}


def main(folder: Path) -> None:
    """Measure every family and write the table."""
    text = "\n\n".join(file.read_text(encoding="utf-8") for file in sorted(folder.rglob("*.md")))
    # Lengths vary, as those of chunks do.
    sizes = [CHARACTERS * (1 + i % 8) // 8 for i in range(TEXTS)]
    texts = [text[i * CHARACTERS : i * CHARACTERS + size] for i, size in enumerate(sizes)]
    torch.set_num_threads(1)
    rows = []
    for name in FAMILIES:
        rows.append((name, *measure(name, texts)))
        print(*rows[-1], flush=True)
    about = (
        "## Encoders\n\nProcessor time of ragembed in one thread, divided by that of sentence-transformers in "
        f"float32, median of {TURNS} turns in one process, for {TEXTS} texts of up to {CHARACTERS:,} characters. The "
        "models have random weights, 6 blocks of 384 dimensions and a window of 256 tokens. Smaller is faster.\n\n"
    )
    header = ("family", "float32", "with `dtype=auto`", "which is")
    write_section("encoders", about + table(header, rows))


def measure(name: str, texts: list[str]) -> tuple[str, str, str]:
    """Return the ratios of the times of ragembed to those of sentence-transformers, and the arithmetic chosen."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = make_model(name, Path(scratch))
        peer = SentenceTransformer(str(folder), device="cpu")
        exact = Embedder(EmbedderConfig(model=str(folder), dtype="float32")).fit(texts)
        chosen = Embedder(EmbedderConfig(model=str(folder))).fit(texts)
        sides: list[Callable[[], Any]] = [
            lambda: peer.encode(texts, batch_size=32),
            lambda: exact.raw_documents(texts),
            lambda: chosen.raw_documents(texts),
        ]
        for side in sides:
            side()
        times = [[clock(side) for side in sides] for _ in range(TURNS)]
    ratios = [statistics.median(turn[i] / turn[0] for turn in times) for i in (1, 2)]
    return f"{ratios[0]:.2f}", f"{ratios[1]:.2f}", chosen.config.dtype


def clock(side: Callable[[], Any]) -> float:
    """Return the seconds of processor time that ``side`` takes."""
    started = time.process_time()
    side()
    return time.process_time() - started


def make_model(name: str, folder: Path) -> Path:
    """Save a model with random weights and MiniLM's tokenizer."""
    torch.manual_seed(0)
    kind, settings = FAMILIES[name]
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        str(find_model("sentence-transformers/all-MiniLM-L6-v2").folder)
    )
    config = getattr(transformers, kind)(vocab_size=len(tokenizer), **settings)
    transformers.AutoModel.from_config(config).save_pretrained(folder / "plain")
    tokenizer.save_pretrained(folder / "plain")
    transformer = Transformer(str(folder / "plain"), max_seq_length=256)
    SentenceTransformer(modules=[transformer, Pooling(384, "mean")]).save(str(folder / "model"))
    return folder / "model"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
