"""Search of one snapshot: dense, hybrid, feedback, ranking, explanations."""
