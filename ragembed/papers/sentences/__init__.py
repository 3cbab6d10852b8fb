"""Sentence tasks: similarity, clustering, classification and isotropy, with their collections and measures."""
