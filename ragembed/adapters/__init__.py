"""What the adapters for LlamaIndex and Haystack share: a store that grows with its documents."""
