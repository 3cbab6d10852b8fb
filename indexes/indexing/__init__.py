"""Index files, fit and refit the embedder of a store, and measure drift."""
