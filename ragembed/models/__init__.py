"""Models: their files, tokenizers and forward passes."""
