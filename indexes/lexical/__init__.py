"""Lexical search: full-text search, posting lists and BM25."""
