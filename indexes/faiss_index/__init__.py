"""Vector indexes: choose a kind that meets a budget, build it in bounded memory, tune it to a measured recall."""

from __future__ import annotations
