"""Fixtures: tiny models of several architectures, and reference hidden states computed with transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import loaded

LINES = [
    "this sentence from the paraphrase dictionary means a synonym and is about which of the other words",
    "the writer holds the lock of the store, a reader is in the folder.",
    "shock wave and boundary layer on a wing: supersonic air flow at high pressure",
    "the cat sleeps and the dog runs - the fish swims, the bird flies!",
    "where does the fox run? it runs \u201cinto\u201d the woods; none of them were seen.",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,?!:;-\"'[]\u201c\u201d"
DIM = 32


class Reference:
    """Token ids and hidden states of a model, one text at a time, computed without ragembed."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer
        from transformers import AutoModel

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self._model = AutoModel.from_pretrained(str(folder)).float().eval()
        self._known: dict[tuple[int, ...], dict[int, NDArray[np.float64]]] = {}

    def ids(self, text: str, special: bool = True) -> list[int]:
        """Return the token ids of a text; names of special tokens are parsed as special tokens."""
        return list(self.tokenizer.encode(text, add_special_tokens=special).ids)

    def states(self, ids: list[int]) -> dict[int, NDArray[np.float64]]:
        """Return the token vectors of each layer, -1 to L, shape ``(tokens, d)``."""
        key = tuple(ids)
        if key not in self._known:
            self._known[key] = self._states(ids)
        return self._known[key]

    @property
    def last(self) -> int:
        """The number of the last layer."""
        return int(self._model.config.num_hidden_layers)

    def _states(self, ids: list[int]) -> dict[int, NDArray[np.float64]]:
        import torch

        with torch.inference_mode():
            row = torch.tensor([ids])
            found = self._model(input_ids=row, output_hidden_states=True).hidden_states
            words = self._model.get_input_embeddings()(row)
        return {layer - 1: state[0].double().numpy() for layer, state in enumerate([words, *found])}

    def mean(self, ids: list[int], layers: tuple[int, ...]) -> NDArray[np.float64]:
        """Return the mean of some layers, shape ``(tokens, d)``."""
        states = self.states(ids)
        mean: NDArray[np.float64] = np.mean([states[layer] for layer in layers], axis=0)
        return mean

    @property
    def table(self) -> NDArray[np.float64]:
        """The word-embedding table."""
        table: NDArray[np.float64] = self._model.get_input_embeddings().weight.detach().double().numpy()
        return table


@pytest.fixture(scope="session")
def reference() -> Callable[[Path], Reference]:
    made: dict[Path, Reference] = {}

    def of(folder: Path) -> Reference:
        if folder not in made:
            made[folder] = Reference(folder)
        return made[folder]

    return of


@pytest.fixture(scope="session")
def bert_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT with 6 blocks and a WordPiece tokenizer that knows the words of the templates."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    words = sorted({word.strip(LETTERS[36:]) for line in LINES for word in line.split()} - {""})
    pieces = dict.fromkeys([*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS[:36]), *words])
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=DIM,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.1,
    )
    return loaded(_saved(tmp_path_factory.mktemp("bert"), tokenizer, BertModel, config))


@pytest.fixture(scope="session")
def roberta_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RoBERTa: byte-level BPE, a ``<mask>`` that absorbs the space before it, positions that start at 2."""
    from tokenizers import AddedToken, processors
    from transformers import RobertaConfig, RobertaModel

    tokenizer = _byte_level(["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    config = RobertaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=DIM,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=66,
        type_vocab_size=1,
        pad_token_id=1,
        initializer_range=0.3,
    )
    return _saved(tmp_path_factory.mktemp("roberta"), tokenizer, RobertaModel, config)


@pytest.fixture(scope="session")
def gpt_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2: byte-level BPE, no special tokens, 64 positions."""
    from transformers import GPT2Config, GPT2Model

    tokenizer = _byte_level([])
    config = GPT2Config(
        vocab_size=tokenizer.get_vocab_size(),
        n_embd=DIM,
        n_layer=2,
        n_head=4,
        n_positions=64,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=0,
    )
    return _saved(tmp_path_factory.mktemp("gpt"), tokenizer, GPT2Model, config)


@pytest.fixture(scope="session")
def llama_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama: byte-level BPE, ``<s>`` before every text and no token after it."""
    from tokenizers import processors
    from transformers import LlamaConfig, LlamaModel

    tokenizer = _byte_level(["<s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=DIM,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
    )
    return _saved(tmp_path_factory.mktemp("llama"), tokenizer, LlamaModel, config)


@pytest.fixture(scope="session")
def words_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GloVe file of 8 dimensions: the numbers ``w0`` to ``w99``, then the words of ``LINES``."""
    words = [f"w{i}" for i in range(100)] + sorted(
        {word.strip(LETTERS[36:]) for line in LINES for word in line.split()}
    )
    vectors = np.random.default_rng(0).normal(size=(len(words), 8))
    file = tmp_path_factory.mktemp("words") / "vectors.txt"
    rows = [" ".join([word, *(f"{x:.6f}" for x in row)]) for word, row in zip(words, vectors, strict=True) if word]
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Use one thread, because the products of tiny models are slower with several."""
    import torch

    torch.set_num_threads(1)


def _byte_level(special: list[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=600, min_frequency=1, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator([line for line in LINES for _ in range(2)], trainer)
    return tokenizer


def _saved(folder: Path, tokenizer: Any, kind: Any, config: Any) -> Path:
    import torch

    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    kind(config).save_pretrained(folder, safe_serialization=True)
    return folder


@pytest.fixture
def resident_bytes() -> Callable[[Path], int]:
    """A function that returns the resident bytes of a mapped file; skips if the system does not report them."""
    maps = Path("/proc/self/smaps")
    if not maps.is_file():
        pytest.skip("the system does not report the memory of a mapped file")

    def resident(file: Path) -> int:
        kibibytes, inside = 0, False
        for line in maps.read_text(encoding="utf-8").splitlines():
            if line.endswith(str(file)):
                inside = True
            elif inside and line.startswith("Rss:"):
                kibibytes, inside = kibibytes + int(line.split()[1]), False
        return kibibytes * 1024

    return resident
