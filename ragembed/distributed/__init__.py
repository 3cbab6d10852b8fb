"""Indexing with several workers, as processes or on Ray: tasks in stages, with files between them."""
