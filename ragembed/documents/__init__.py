"""Turn files into chunks: find the files, read their formats and split their texts."""
