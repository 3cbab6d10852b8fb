"""The store on disk: database, transactions, segments, compaction and copies."""
