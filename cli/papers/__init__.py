"""The commands of ``ragembed papers``: the only modules outside of :mod:`ragembed.papers` that import it."""
