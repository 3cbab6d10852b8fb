"""Extractors: one way each to make a raw vector of a text."""
