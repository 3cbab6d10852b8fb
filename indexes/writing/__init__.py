"""Writing to a store: chunks, the index, postings and boilerplate."""
