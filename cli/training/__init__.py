"""Options, progress and reports of ``ragembed train``."""
