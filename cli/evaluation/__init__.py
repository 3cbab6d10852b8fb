"""The tasks of ``ragembed eval``, and what they share."""
