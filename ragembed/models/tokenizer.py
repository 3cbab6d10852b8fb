"""The tokenizer of a model: texts to token ids and to character spans."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ragembed.config.specs import MASK, Template
from ragembed.errors import ConfigError, ModelError
from ragembed.files import read_regular
from ragembed.models.packaging import MOST_TOKENIZER, read_json
from ragembed.models.token_ids import TokenIds
from ragembed.models.word_pieces import WordPieces, splits_by_words
from ragembed.types import Spans

if TYPE_CHECKING:
    import tokenizers

_FALLBACK_LIMIT, _LEAST_ROOM = 512, 4
_UNLIMITED = 1_000_000
"""A larger ``model_max_length`` in ``tokenizer_config.json`` means that the tokenizer has no limit."""
_PACKAGE, _TOKENIZER = "sentence_bert_config.json", "tokenizer_config.json"
_MASK_TOKENS = ("[MASK]", "<mask>")
_POSITIONS = ("max_position_embeddings", "n_positions")
_OFFSET_POSITIONS = frozenset({"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer", "ibert"})
"""Model types whose position numbers start after the id of the padding token."""


_ADDED_BY_TRANSFORMERS = frozenset({"add_bos_token", "add_eos_token"})
"""Settings in ``tokenizer_config.json`` that transformers applies to the tokenizer in ``tokenizer.json``."""


class TokenKind(IntEnum):
    """The origin of a token in a window."""

    PADDING = 0
    SPECIAL = 1
    TEMPLATE = 2
    MASK = 3
    TEXT = 4


@dataclass(frozen=True, slots=True)
class Frame:
    """The tokens before and after the text in each window: ids and kinds.

    ``lead`` is the space before the text. ``joined`` is a prompt that is tokenized with the text, because its last
    token may depend on it. ``prompt_tokens`` includes special tokens before the prompt.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    prefix_kinds: tuple[TokenKind, ...]
    suffix_kinds: tuple[TokenKind, ...]
    lead: str = ""
    joined: str = ""
    prompt_tokens: int = 0

    def room(self, max_tokens: int) -> int:
        """Return the number of tokens of a text that fit in a window; raise :class:`ConfigError` if there are few."""
        framing = len(self.prefix) + len(self.suffix)
        if max_tokens - framing < _LEAST_ROOM:
            raise ConfigError(
                f"max_tokens is {max_tokens}: the template and special tokens take {framing}, and the text needs at "
                f"least {_LEAST_ROOM}; expected at least {framing + _LEAST_ROOM}"
            )
        return max_tokens - framing

    @property
    def has_masks(self) -> bool:
        """Whether the frame contains a mask token."""
        return TokenKind.MASK in (*self.prefix_kinds, *self.suffix_kinds)


class TextTokenizer:
    """The fast tokenizer in ``folder``, for the model in that folder or in ``model``.

    ``prefix`` and ``suffix`` are the ids of the special tokens before and after a text.

    ``max_tokens`` is the window that the model's package states, at most the number of positions. The name of a special
    token inside a text is ordinary text.
    """

    def __init__(self, folder: Path, model: Path | None = None, *, without_special_tokens: bool = False) -> None:
        self._folder = folder
        self._tokenizer = _load(folder)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        if read_json(folder / _PACKAGE).get("do_lower_case"):  # whatever the tokenizer does
            _lower_case(self._tokenizer)
        self.max_tokens = model_window(folder, model or folder)
        self.prefix: list[int] = []
        self.suffix: list[int] = []
        if not without_special_tokens:
            encoding = self._tokenizer.encode("a", add_special_tokens=True)
            text_at = [i for i, special in enumerate(encoding.special_tokens_mask) if not special]
            self.prefix, self.suffix = encoding.ids[: text_at[0]], encoding.ids[text_at[-1] + 1 :]
        self._tokenizer.encode_special_tokens = True
        self._pieces = WordPieces(self._tokenizer) if splits_by_words(self._tokenizer) else None

    @cached_property
    def vocabulary_size(self) -> int:
        """Number of token ids, including ids without a token."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    @property
    def unknown_ids(self) -> frozenset[int]:
        """The id of the token for unknown words, if there is one."""
        name = json.loads(self._tokenizer.to_str())["model"].get("unk_token")
        number = None if name is None else self._tokenizer.token_to_id(name)
        return frozenset() if number is None else frozenset({number})

    @property
    def special_tokens(self) -> int:
        """Number of special tokens in each window."""
        return len(self.prefix) + len(self.suffix)

    def ids(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of each text, without special tokens and without truncation."""
        if self._pieces is not None:
            return self._pieces.ids([_encodable(text) for text in texts])
        return TokenIds.of(encoding.ids for encoding in self._encode(texts))

    def offsets(self, texts: Sequence[str]) -> Sequence[Spans]:
        """Return the ``(start, end)`` character spans of the tokens of each text, without special tokens."""
        if self._pieces is not None:
            return self._pieces.offsets([_encodable(text) for text in texts])
        return [encoding.offsets for encoding in self._encode(texts)]

    def ids_and_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the token ids of ``text`` and the ``(start, end)`` character span of each."""
        [encoding] = self._encode([text])
        return encoding.ids, encoding.offsets

    def framed(self, texts: Sequence[str], frame: Frame) -> list[tuple[tuple[int, ...], NDArray[np.int64]]]:
        """Return the token ids before each text in its first window, and those of the text, without truncation."""
        if not frame.joined:
            return [(frame.prefix, ids) for ids in self.ids([frame.lead + text for text in texts])]
        framed = []
        for encoding in self._encode([frame.joined + text for text in texts]):
            own = _tokens_within(encoding.offsets, len(frame.joined))
            framed.append(((*self.prefix, *encoding.ids[:own]), np.array(encoding.ids[own:], dtype=np.int64)))
        return framed

    def text_spans(self, text: str, frame: Frame) -> list[tuple[int, int]]:
        """Return the ``(start, end)`` character spans in ``text`` of the tokens that :meth:`framed` returns for it."""
        before = frame.joined or frame.lead
        _, spans = self.ids_and_offsets(before + text)
        if frame.joined:
            spans = spans[_tokens_within(spans, len(before)) :]
        return [(max(start - len(before), 0), max(end - len(before), 0)) for start, end in spans]

    def names(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens with these ``ids``; an id without a token gives an empty string."""
        return [self._tokenizer.id_to_token(number) or "" for number in ids]

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, without special tokens."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)

    def vocabulary(self) -> list[str]:
        """Return the tokens by id; an id without a token gives an empty string."""
        tokens = [""] * self.vocabulary_size
        for token, number in self._tokenizer.get_vocab(with_added_tokens=True).items():
            tokens[number] = token
        return tokens

    def frame(self, template: Template) -> Frame:
        """Return the tokens around the text in each window.

        A template with masks is tokenized in parts, as in the programs of its authors, a prompt with the text, as in
        sentence-transformers.
        """
        lead = template.before[len(template.before.rstrip(" ")) :]
        joined = "" if template.masks or not self._depends_on_text(template.before) else template.before
        before, after = self._template_ids(template.before.rstrip(" ")), self._template_ids(template.after)
        mask = self._tokenizer.token_to_id(self._mask_token()) if template.masks else None

        def kinds(ids: list[int]) -> list[TokenKind]:
            return [TokenKind.MASK if number == mask else TokenKind.TEMPLATE for number in ids]

        return Frame(
            prefix=(*self.prefix, *before),
            suffix=(*after, *self.suffix),
            prefix_kinds=(*[TokenKind.SPECIAL] * len(self.prefix), *kinds(before)),
            suffix_kinds=(*kinds(after), *[TokenKind.SPECIAL] * len(self.suffix)),
            lead="" if joined else lead,
            joined=joined,
            prompt_tokens=len(self.prefix) + len(self._template_ids(template.before)) if template.before else 0,
        )

    def _depends_on_text(self, prompt: str) -> bool:
        """Return whether the tokens of ``prompt`` may depend on the text after it.

        They do not if the tokenizer splits at white space and punctuation first, or if the prompt has special tokens,
        which are tokens only outside a text.
        """
        if not prompt.strip() or any(name in prompt for name in self._special_names):
            return False
        return self._pieces is None or prompt[-1].isalnum()

    @property
    def _special_names(self) -> set[str]:
        """The names of the special tokens."""
        return {str(token.content) for token in self._tokenizer.get_added_tokens_decoder().values() if token.special}

    def _template_ids(self, part: str) -> list[int]:
        """Return the token ids of a part of a template."""
        filled = part.replace(MASK, self._mask_token()) if MASK in part else part
        self._tokenizer.encode_special_tokens = False
        try:
            return list(self._tokenizer.encode(filled, add_special_tokens=False).ids)
        finally:
            self._tokenizer.encode_special_tokens = True

    @property
    def has_mask(self) -> bool:
        """Whether the model has a mask token, which templates may contain."""
        return self._known_mask() is not None

    def _mask_token(self) -> str:
        """Return the mask token; raise :class:`ConfigError` if there is none."""
        token = self._known_mask()
        if token is None:
            raise ConfigError(
                f"the model in {self._folder} has no mask token, but the template contains {MASK}: choose a template "
                f"without {MASK}"
            )
        return token

    def _known_mask(self) -> str | None:
        """Return the mask token, or None if the model has none."""
        special = read_json(self._folder / _TOKENIZER).get("mask_token")
        stated = special.get("content") if isinstance(special, dict) else special
        names = self._special_names
        masks = (token for token in (stated, *_MASK_TOKENS) if isinstance(token, str) and token in names)
        return next(masks, None)

    def _encode(self, texts: Sequence[str]) -> list[tokenizers.Encoding]:
        return self._tokenizer.encode_batch([_encodable(text) for text in texts], add_special_tokens=False)


def _encodable(text: str) -> str:
    """Replace lone surrogates, which have no UTF-8 form, so that any str can be tokenized."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _tokens_within(spans: Sequence[tuple[int, int]], end: int) -> int:
    """Return the number of leading tokens that end at or before the character ``end``."""
    return next((i for i, (_, stop) in enumerate(spans) if stop > end), len(spans))


def _lower_case(tokenizer: tokenizers.Tokenizer) -> None:
    """Let ``tokenizer`` lower-case texts first, if it does not already lower-case them."""
    from tokenizers import normalizers

    own = tokenizer.normalizer
    if re.search(r'"type":"Lowercase"|"lowercase":true', tokenizer.to_str().replace(" ", "")) is None:
        first = normalizers.Lowercase()
        tokenizer.normalizer = first if own is None else normalizers.Sequence([first, own])


def _load(folder: Path) -> tokenizers.Tokenizer:
    """Load the fast tokenizer in ``folder``, through transformers if it is a slow one or changes the special tokens."""
    file = folder / "tokenizer.json"
    if file.is_file() and not read_json(folder / _TOKENIZER).keys() & _ADDED_BY_TRANSFORMERS:
        return read_tokenizer(file)
    from ragembed.models.transformers_model import slow_tokenizer

    return slow_tokenizer(folder)


def read_tokenizer(file: Path) -> tokenizers.Tokenizer:
    """Return the tokenizer in a ``tokenizer.json``; raise :class:`ModelError` if it cannot be read."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_buffer(read_regular(file, MOST_TOKENIZER))
    except MemoryError:
        raise
    except Exception as error:  # the package raises no narrower class
        raise ModelError(f"cannot read the tokenizer {file}: {error}; get the model again") from error


def model_window(folder: Path, model: Path) -> int:
    """Return the number of tokens in the window of ``model`` with the tokenizer in ``folder``.

    The model's package states it in ``sentence_bert_config.json`` or, from sentence-transformers 6, in
    ``tokenizer_config.json``. The first one counts, even if it is larger.
    """
    stated = read_json(folder / _PACKAGE).get("max_seq_length"), read_json(folder / _TOKENIZER).get("model_max_length")
    sizes = [int(limit) for limit in stated if isinstance(limit, int | float) and 0 < limit <= _UNLIMITED]
    config = read_json(model / "config.json")
    positions = next((int(config[name]) for name in _POSITIONS if isinstance(config.get(name), int)), None)
    if positions and config.get("model_type") in _OFFSET_POSITIONS:
        positions -= int(config.get("pad_token_id") or 0) + 1
    limits = [limit for limit in (*sizes[:1], positions) if limit]
    return min(limits) if limits else _FALLBACK_LIMIT
