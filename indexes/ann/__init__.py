"""From vectors to an index: chosen by budget, built in bounded memory, tuned to a measured recall."""

from __future__ import annotations
