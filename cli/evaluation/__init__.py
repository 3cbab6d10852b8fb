"""The commands of ``ragembed eval`` and their shared code."""
