"""Forward passes: a model's token ids to hidden states, by PyTorch or, for BERT, by kernels chosen for it."""
