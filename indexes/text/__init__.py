"""Text analysis for the full-text index: words, stems, and scripts without spaces."""
