"""A model's tokenizer: texts to token ids, and to the character spans of their tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragembed.errors import ModelError

if TYPE_CHECKING:
    import tokenizers

_FALLBACK_LIMIT = 512
_OFFSET_POSITIONS = frozenset({"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer", "ibert"})
"""Model types whose positions begin after the padding token's id."""


class TextTokenizer:
    """Fast tokenizer of the model in ``folder``; raises :class:`ModelError` where there is none.

    ``max_tokens`` is the longest window the model takes, special tokens included: sentence-transformers'
    ``max_seq_length`` where the model states it, else the number of its positions.
    """

    def __init__(self, folder: Path) -> None:
        self._tokenizer = _load(folder)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.vocabulary_size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self.max_tokens = _model_limit(folder)
        self.prefix, self.suffix = self._frame()

    @property
    def special_tokens(self) -> int:
        """How many special tokens frame each window."""
        return len(self.prefix) + len(self.suffix)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, without special tokens and without any limit."""
        return [encoding.ids for encoding in self._encode(texts)]

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Return for each text the ``(start, end)`` character spans of its tokens, without special tokens."""
        return [encoding.offsets for encoding in self._encode(texts)]

    def _encode(self, texts: Sequence[str]) -> list[tokenizers.Encoding]:
        return self._tokenizer.encode_batch([_encodable(text) for text in texts], add_special_tokens=False)

    def _frame(self) -> tuple[list[int], list[int]]:
        """Return the special token ids before and after a text."""
        encoding = self._tokenizer.encode("a", add_special_tokens=True)
        text_at = [i for i, special in enumerate(encoding.special_tokens_mask) if not special]
        return encoding.ids[: text_at[0]], encoding.ids[text_at[-1] + 1 :]


def _encodable(text: str) -> str:
    """Replace lone surrogates, which have no UTF-8 form, so that any str can be tokenized."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _load(folder: Path) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    if file.is_file():
        return Tokenizer.from_file(str(file))
    from ragembed.backbone import slow_tokenizer

    return slow_tokenizer(folder)


def _model_limit(folder: Path) -> int:
    positions = _field(folder / "config.json", "max_position_embeddings")
    if positions and _text_field(folder / "config.json", "model_type") in _OFFSET_POSITIONS:
        positions -= (_field(folder / "config.json", "pad_token_id") or 0) + 1
    limits = [_field(folder / "sentence_bert_config.json", "max_seq_length"), positions]
    known = [limit for limit in limits if limit]
    return min(known) if known else _FALLBACK_LIMIT


def _text_field(file: Path, name: str) -> str:
    return str(_read(file).get(name, ""))


def _field(file: Path, name: str) -> int | None:
    value = _read(file).get(name)
    return int(value) if isinstance(value, int) else None


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ModelError(f"{file} holds no JSON object")
    return fields
