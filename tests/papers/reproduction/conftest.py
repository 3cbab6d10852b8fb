"""A model of six blocks with a head for masked words, and a tiny version of every collection."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ragembed.papers.reproduction.data import COLLECTIONS
from tests.conftest import WORDS
from tests.papers.training.conftest import senses
from tests.pretrained import pretrained


@pytest.fixture(scope="session")
def six_blocks(tmp_path_factory) -> Path:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("six-blocks")
    return pretrained(folder, 4, num_hidden_layers=6, max_position_embeddings=160)


def texts(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=6)) for _ in range(count)]


def write_collection(name: str, folder: Path) -> None:
    """Write a tiny version of a collection in the format that its task reads; STS-B has its splits."""
    one = COLLECTIONS[name]
    file = folder / next((path for path in one.paths if path.endswith(".tsv")), one.paths[0])
    file.parent.mkdir(parents=True, exist_ok=True)
    seed = sum(map(ord, name))
    if one.group == "corpus":
        file.mkdir()
        (file / "test.txt").write_text("\n".join(f"The {text} . The {text} ." for text in texts(40, seed)))
    elif one.group == "dictionary":
        file.write_text("".join(f"{entry}\t{definition}\n" for entry, definition in senses(seed=seed)))
    elif one.group == "STS" or one.task == "relatedness":
        split = ["train", "dev", "test"] if one.task == "relatedness" or name == "stsb" else []
        rows = zip(texts(36, seed), texts(36, seed + 1), strict=True)
        header = [*(["split"] if split else []), "score", "sentence1", "sentence2"]
        lines = [[*([split[i // 12]] if split else []), str(i % 6), *row] for i, row in enumerate(rows)]
        file.write_text("".join("\t".join(line) + "\n" for line in [header, *lines]))
    elif one.group == "probing":
        lines = [f"{('tr', 'va', 'te')[i % 3]}\t{i % 2}\t{text}\n" for i, text in enumerate(texts(36, seed))]
        file.write_text("".join(lines))
    elif one.group == "classification":
        rows = [f"{('train', 'dev', 'test')[i % 3]}\t{i % 2}\t{text}\n" for i, text in enumerate(texts(60, seed))]
        file.write_text("split\tlabel\ttext\n" + "".join(rows))
    else:
        rows = [f"{i % 3}\t{text}\n" for i, text in enumerate(texts(30, seed))]
        file.write_text("label\ttext\n" + "".join(rows))


@pytest.fixture(scope="session")
def collections(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("collections")
    for name in COLLECTIONS:
        if name != "wikitext-103":
            write_collection(name, folder)
    return folder


@pytest.fixture(scope="session")
def xlnet(tmp_path_factory) -> Path:
    """A model of six blocks whose special tokens are at the end, where XLNet has them."""
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, XLNetConfig, XLNetModel

    special = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"]
    vocabulary = [(token, 0.0) for token in special] + [(f"▁{word}", -5.0) for word in WORDS]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A:0 <sep>:0 <cls>:2", special_tokens=[("<sep>", 4), ("<cls>", 3)]
    )
    folder = tmp_path_factory.mktemp("xlnet")
    names = dict(zip(("unk", "bos", "eos", "cls", "sep", "pad", "mask"), special, strict=True))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, padding_side="left", **{f"{name}_token": token for name, token in names.items()}
    ).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"vocab_size": len(vocabulary), "d_model": 16, "n_layer": 6, "n_head": 2, "d_inner": 32}
    XLNetModel(XLNetConfig(**sizes)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def word_vectors(tmp_path_factory) -> Path:
    draw = random.Random(0)
    words = [*(f"frequent{i}" for i in range(100)), *WORDS]  # B2S-100 drops the first hundred
    file = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    file.write_text("".join(f"{word} {' '.join(f'{draw.gauss(0, 1):.4f}' for _ in range(8))}\n" for word in words))
    return file
