"""A store from more documents than one process can take: stages with files between them, on processes or on Ray."""
