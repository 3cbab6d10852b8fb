"""The version of the package."""

__version__ = "0.1.0"
SCHEMA_VERSION = 1
"""Version of the JSON that the command line prints and the servers answer."""
