"""Stages on workers: what they cost, measured, modelled and simulated; see README.md beside this folder."""
