"""Readers turn the bytes of a file into documents with their structure and positions. There is one module per format.

``read(name, data)`` yields the documents of a file in any format. ``READERS`` is the table of formats. A format without
lines sets ``page_numbers``, which is empty if the format has no pages either. If a reader leaves something out of the
text (menus, outputs, markup), it also leaves out the corresponding line numbers. The blank line between two blocks has
the position where the upper block ends.
"""

from ragembed.documents.readers.reader import DEFAULT_OPTIONS, Reader, ReadOptions, only_document_errors
from ragembed.documents.readers.registry import READERS, read, reader_for

__all__ = ["DEFAULT_OPTIONS", "READERS", "ReadOptions", "Reader", "only_document_errors", "read", "reader_for"]
