"""Files to chunks: discovering files, reading formats, splitting texts."""
