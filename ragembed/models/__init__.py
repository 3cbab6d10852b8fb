"""Models: finding their files, tokenizers, BERT in NumPy and in PyTorch, and devices."""
