"""Extractors: the methods that turn a text into a raw vector."""
