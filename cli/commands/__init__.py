"""One module per command; each has a ``command``."""
