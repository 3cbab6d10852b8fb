"""Post-processors: maps of vectors that are fitted on the corpus, and the two-sided chain of them."""

from ragembed.postprocess.chain import Chain, TwoSidedChain
from ragembed.postprocess.normalize import unit_rows

__all__ = ["Chain", "TwoSidedChain", "unit_rows"]
