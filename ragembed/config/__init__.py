"""Settings of an embedder: components, presets and prompt templates."""
