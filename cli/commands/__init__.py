"""The commands: one module each, with the click command as ``command``."""
