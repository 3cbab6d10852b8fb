"""Indexing files: request, scan, fitting, refitting and drift."""
