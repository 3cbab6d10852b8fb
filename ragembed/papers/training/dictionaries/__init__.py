"""Read dictionaries and merge them into entries with definitions. There is one module per file format."""
