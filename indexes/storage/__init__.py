"""The store on disk: schema, transactions, queries, segments, compaction and copies."""
