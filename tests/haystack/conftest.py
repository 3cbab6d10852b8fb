"""Haystack without telemetry: tests do not use a network."""

import os

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
