"""Search of one snapshot: dense, lexical and hybrid search, feedback, ranking, and explanations."""
