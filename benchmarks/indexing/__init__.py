"""Indexes of the same vectors by ragembed and by its peers; see README.md beside this folder."""
