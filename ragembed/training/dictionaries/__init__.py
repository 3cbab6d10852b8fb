"""Dictionaries: one module for each file format, merged into entries with their definitions."""
