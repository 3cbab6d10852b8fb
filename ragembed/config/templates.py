"""Prompt templates: the text around a document or query that the model reads.

Source: Stankevičius & Lukoševičius 2024, table 1; T0 is from Jiang et al. 2022 (PromptBERT).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ragembed.errors import ConfigError

TEXT, MASK = "[X]", "[M]"
PLAIN = TEXT
"""The template without any text around ``[X]``."""

TEMPLATES: Mapping[str, str] = {
    "t0": 'This sentence: "[X]" means [M].',
    "t1": 'This sentence: "[X]" means [M][M].',
    "t2": 'This sentence: "[X]" means "[M][M]" and is about [M].',
    "t3": 'This sentence from the paraphrase dictionary: "[X]" means "[M]", which is about [M].',
    "t4": 'This sentence from the dictionary: "[X]" means "[M]" and is about [M], which is a synonym for [M].',
}


@dataclass(frozen=True, slots=True)
class Template:
    """The parts of a prompt before and after the text; ``[M]`` in a part is a mask token."""

    before: str
    after: str

    @classmethod
    def parse(cls, spec: str) -> Template:
        """Parse a name (``t0`` to ``t4``) or a text that contains ``[X]`` once.

        Raises :class:`ConfigError` if it does not.
        """
        text = TEMPLATES.get(spec.lower(), spec)
        if text.count(TEXT) != 1:
            raise ConfigError(
                f"template {spec!r}: expected one of {', '.join(TEMPLATES)}, or a text that contains {TEXT} once, "
                f"as in 'passage: {TEXT}'"
            )
        before, _, after = text.partition(TEXT)
        return cls(before, after)

    @property
    def masks(self) -> int:
        """The number of mask tokens."""
        return (self.before + self.after).count(MASK)
