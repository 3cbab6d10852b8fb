"""Run the tables and figures of the papers that the methods come from, beside the published numbers.

:data:`ragembed.papers.reproduction.paper_items.PAPERS` describes each table and figure once: its collections, its
configurations and the function that measures it. :func:`ragembed.papers.reproduction.reproduction_run.reproduce` runs
any of them.
"""
