"""Postings: which chunks have a term how often, in files made from the texts, where BM25 over FTS5 takes too long."""
