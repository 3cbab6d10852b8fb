"""What the adapters for LangChain, LlamaIndex and Haystack share: a store that grows with its documents."""
