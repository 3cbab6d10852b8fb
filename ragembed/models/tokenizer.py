"""The tokenizer of a model: texts to token ids and to character spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ragembed.config.templates import MASK, Template
from ragembed.errors import ConfigError
from ragembed.models.packaging import read_json, window
from ragembed.models.token_ids import TokenIds
from ragembed.models.word_pieces import WordPieces, splits_by_words

if TYPE_CHECKING:
    import tokenizers

_FALLBACK_LIMIT = 512
_MASK_TOKENS = ("[MASK]", "<mask>")
_POSITIONS = ("max_position_embeddings", "n_positions")
_OFFSET_POSITIONS = frozenset({"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer", "ibert"})
"""Model types whose position numbers start after the id of the padding token."""


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

    ``lead`` is the space between the template and the text.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    prefix_kinds: tuple[TokenKind, ...]
    suffix_kinds: tuple[TokenKind, ...]
    lead: str = ""

    @property
    def ids(self) -> set[int]:
        """The ids of all tokens of the frame."""
        return {*self.prefix, *self.suffix}

    @property
    def has_masks(self) -> bool:
        """Whether the frame contains a mask token."""
        return TokenKind.MASK in (*self.prefix_kinds, *self.suffix_kinds)


class TextTokenizer:
    """The fast tokenizer of the model in ``folder``; raises :class:`ModelError` if there is none.

    ``max_tokens`` is the size of the model's window, special tokens included: the limit that the model's package
    states, at most the number of positions. The name of a special token inside a text, such
    as ``[MASK]``, is ordinary text.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokenizer = _load(folder)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.max_tokens = model_window(folder)
        self.prefix, self.suffix = self._special_frame()
        self._tokenizer.encode_special_tokens = True
        self._pieces = WordPieces(self._tokenizer) if splits_by_words(self._tokenizer) else None

    @cached_property
    def vocabulary_size(self) -> int:
        """Number of token ids, including ids without a token."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    @property
    def special_tokens(self) -> int:
        """Number of special tokens in each window."""
        return len(self.prefix) + len(self.suffix)

    def ids(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of each text, without special tokens and without truncation."""
        if self._pieces is not None:
            return self._pieces.ids([_encodable(text) for text in texts])
        return TokenIds.of(encoding.ids for encoding in self._encode(texts))

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Return the ``(start, end)`` character spans of the tokens of each text, without special tokens."""
        return [encoding.offsets for encoding in self._encode(texts)]

    def ids_and_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the token ids of ``text`` and the ``(start, end)`` character span of each."""
        [encoding] = self._encode([text])
        return encoding.ids, encoding.offsets

    def names(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens with these ``ids``; an id without a token gives an empty string."""
        return [self._tokenizer.id_to_token(number) or "" for number in ids]

    def vocabulary(self) -> list[str]:
        """Return the tokens by id; an id without a token gives an empty string."""
        tokens = [""] * self.vocabulary_size
        for token, number in self._tokenizer.get_vocab(with_added_tokens=True).items():
            tokens[number] = token
        return tokens

    def frame(self, template: Template) -> Frame:
        """Return the tokens around the text in each window.

        Each part of a template is tokenized on its own, as in the programs of the templates' authors. The space before
        the text belongs to the text. Raises :class:`ConfigError` if the template contains a mask token and the model
        has none.
        """
        lead = template.before[len(template.before.rstrip(" ")) :]
        before, after = self._template_ids(template.before.rstrip(" ")), self._template_ids(template.after)
        mask = self._tokenizer.token_to_id(self._mask_token()) if template.masks else None

        def kinds(ids: list[int]) -> list[TokenKind]:
            return [TokenKind.MASK if number == mask else TokenKind.TEMPLATE for number in ids]

        return Frame(
            prefix=(*self.prefix, *before),
            suffix=(*after, *self.suffix),
            prefix_kinds=(*[TokenKind.SPECIAL] * len(self.prefix), *kinds(before)),
            suffix_kinds=(*kinds(after), *[TokenKind.SPECIAL] * len(self.suffix)),
            lead=lead,
        )

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
        special = read_json(self._folder / "tokenizer_config.json").get("mask_token")
        stated = special.get("content") if isinstance(special, dict) else special
        special_tokens = {str(token.content) for token in self._tokenizer.get_added_tokens_decoder().values()}
        known = (token for token in (stated, *_MASK_TOKENS) if isinstance(token, str) and token in special_tokens)
        return next(known, None)

    def _encode(self, texts: Sequence[str]) -> list[tokenizers.Encoding]:
        return self._tokenizer.encode_batch([_encodable(text) for text in texts], add_special_tokens=False)

    def _special_frame(self) -> tuple[list[int], list[int]]:
        """Return the special token ids before and after a text."""
        encoding = self._tokenizer.encode("a", add_special_tokens=True)
        text_at = [i for i, special in enumerate(encoding.special_tokens_mask) if not special]
        return encoding.ids[: text_at[0]], encoding.ids[text_at[-1] + 1 :]


def _encodable(text: str) -> str:
    """Replace lone surrogates, which have no UTF-8 form, so that any str can be tokenized."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _load(folder: Path) -> tokenizers.Tokenizer:
    """Load the fast tokenizer in ``folder``, or convert the slow one."""
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    if file.is_file():
        return Tokenizer.from_file(str(file))
    from ragembed.models.transformers_model import slow_tokenizer

    return slow_tokenizer(folder)


def model_window(folder: Path) -> int:
    """Return the size of the model's window in tokens, special tokens included."""
    config = read_json(folder / "config.json")
    positions = next((int(config[name]) for name in _POSITIONS if isinstance(config.get(name), int)), None)
    if positions and config.get("model_type") in _OFFSET_POSITIONS:
        positions -= int(config.get("pad_token_id") or 0) + 1
    known = [limit for limit in (window(folder), positions) if limit]
    return min(known) if known else _FALLBACK_LIMIT
