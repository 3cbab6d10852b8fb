"""Folders of langchain-community's FAISS store, read and written without it; nothing in them is executed."""
