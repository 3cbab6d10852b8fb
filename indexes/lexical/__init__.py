"""Search by words: full-text search, posting lists and BM25."""
