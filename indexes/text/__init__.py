"""Text analysis: what the full-text index gets of a text, and stemming."""
