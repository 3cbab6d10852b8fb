"""Readers: one module per format turns a file's bytes into documents with structure and places.

``read(path)`` gives the documents of any file; ``READERS`` is the table of formats. A format without lines has
``page_numbers``, which is empty where it has no pages either. What a reader leaves out of a text (menus, outputs,
markup) it also leaves out of the lines; the blank line between two blocks has the place where the upper one ends.
"""

from ragembed.documents.readers.reader import DEFAULT_OPTIONS, Reader, ReadOptions, only_document_errors
from ragembed.documents.readers.registry import READERS, read, reader_for

__all__ = ["DEFAULT_OPTIONS", "READERS", "ReadOptions", "Reader", "only_document_errors", "read", "reader_for"]
