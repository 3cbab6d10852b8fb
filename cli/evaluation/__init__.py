"""The command ``ragembed eval retrieval`` and what it shares with ``ragembed papers eval``."""
